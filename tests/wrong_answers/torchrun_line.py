# %% the name of the job holds the host's, so that no two hosts meet
# told: The nodes give the job different names
edit("--rdzv-id={job}", "--rdzv-id={job}-{host}")

# %% every host names itself
# told: The lines of this job name different endpoints
edit("{meeting_point}", "{host}")

# %% takes hosts for a list of counts
# told: `hosts` is a dict
edit("hosts[host]", "hosts[0]")

# %% a text whose words with blanks in them are cut by the shell
# told: One word has become several
edit("return [", 'return " ".join([', "    ]\n", "    ])\n")

# %% the job may begin with one host
# told: With a range, torchrun starts with fewer nodes
edit("--nnodes={len", "--nnodes=1:{len")

# %% the endpoint is localhost
# told: On every node, this name means that node itself
edit("{meeting_point}", "localhost")

# %% the endpoint is the list of all hosts
# told: Is this the name of one of the job's nodes
edit("{meeting_point}", "{','.join(hosts)}")

# %% adds a number to a text
# told: A number is not a string. Which of the words contains one?
edit('f"--nnodes={len(hosts)}"', '"--nnodes=" + len(hosts)')

# %% all jobs have the same name
# told: Another job may have this name as well
edit("{job}", "my_job")

# %% an option and its value are one word of the list
# told: an option and its value are two, or one with a = between them
edit("--nnodes=", "--nnodes ", "--nproc-per-node=", "--nproc-per-node ")

# %% torchrun's options come after the program, which gets them as arguments
# told: Where must torchrun's own options stand?
edit('"torchrun",', '"torchrun", *program,', "        *program,\n", "")

# %% the port is one that this author always takes
# told: The node is right. At which port do they meet?
edit("{port}", "29500")

# %% takes this host out of the caller's dict
# told: Which line changes the caller's dict or list?
edit("hosts[host]", "hosts.pop(host)")

# %% --standalone on each host, which makes a job of each
# told: --standalone makes a whole job of one node
edit('"torchrun",', '"torchrun", "--standalone",', '"--rdzv-backend=c10d",', "")

# %% returns a number
# told: Which of your lines makes the list of words?
edit("return [", "return len([", "    ]\n", "    ])\n")

# %% an argument of its own for the program
# told: torchrun takes whatever follows its last option for the program
edit("*program", '*program, "--lr=0.1"')

# %% counts one host too few
# told: How many nodes does the job have, and which option counts them?
edit("{len(hosts)}", "{len(hosts) - 1}")

# %% one rank too many
# told: How many GPUs does this node have, according to `hosts`?
edit("{hosts[host]}", "{hosts[host] + 1}")

# %% another kind of rendezvous
# told: Which kind of rendezvous does the task ask for?
edit("=c10d", "=etcd-v2")

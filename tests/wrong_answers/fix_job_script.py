# %% returns a dict
# told: The given function returned both scripts as strings
edit("return slurm, pbs", 'return {"slurm": slurm, "pbs": pbs}')

# %% a quote is not closed
# told: unexpected EOF while looking for matching `''
# told: every quote and bracket closed?
edit("5'\n", "5\n")

# %% asks for GPUs beside select, which qsub refuses
# told: cannot be used with "select", resource is: ngpus
edit(":ngpus=4", "\n    #PBS -l ngpus=4")

# %% an option that torchrun does not have
# told: torchrun: unrecognized arguments: --nodes=2
edit("--nnodes=$SLURM_NNODES", "--nodes=$SLURM_NNODES")

# %% a blank makes a comment of the directive
# told: does not read: # SBATCH --gpus-per-node=4
# told: To bash, every directive is a comment
edit("#SBATCH --gpus", "# SBATCH --gpus")

# %% the time limit stands below the first command
# told: does not read: #SBATCH --time=00:30:00
edit("    #SBATCH --time", "    module load pytorch\n    #SBATCH --time")

# %% the Slurm job asks for one node
# told: nodes: 1
# told: Which directives say how many nodes the job gets
edit("--nodes=2", "--nodes=1")

# %% asks for certain nodes
# told: nodes asked for by name: gpu-07,gpu-11
edit("--nodes=2", "--nodes=2 -w gpu-07,gpu-11")

# %% both chunks may be on one node
# told: chunks that may share a node: 2
edit("    #PBS -l place=scatter\n", "")

# %% --gpus is the number of all GPUs together
# told: A job gets no GPU that it has not asked for
edit("--gpus-per-node=4", "--gpus=4")

# %% 30 is a number of seconds to PBS
# told: which unit does this scheduler read?
edit("walltime=00:30:00", "walltime=30")

# %% mkdir comes too late for the log
# told: The scheduler opens the log before the first command runs
edit("    module load", "    #SBATCH --output=logs/%j.out\n    mkdir -p logs\n    module load")

# %% waits for a file that nobody writes
# told: Which loop or which waiting command of the script
edit("    nodes=$(", "    until [ -e ready ]; do sleep 1; done\n    nodes=$(")

# %% torchrun starts where the script runs, on the first node
# told: nodes without a torchrun: gpu-11
# told: A job script runs on the first node only
edit("srun --cpus-per-task=32 bash", "bash")

# %% set -e ends the script at a test that fails
# told: nodes without a torchrun: gpu-07, gpu-11 also wrong: status if nothing fails
edit("    module load", "    set -e\n    [ -d /scratch/nobody ]\n    module load")

# %% a command that is not there
# told: bash: line 13: startall: command not found
edit("srun --cpus-per-task=32 bash", "startall bash")

# %% starts the program without torchrun
# told: started in the place of torchrun: python train.py --epochs 5
edit("bash -c 'torchrun", "bash -c 'python train.py --epochs 5; exit; torchrun")

# %% 4 tasks a node, and 4 ranks of each
# told: torchruns on a node: 4
# told: how often must torchrun itself be started there?
edit("--ntasks-per-node=1", "--ntasks-per-node=4")

# %% --nnodes is the number of ranks
# told: torchruns that meet: 8
edit("=$SLURM_NNODES", "=$((SLURM_NNODES * 4))")

# %% one rank on each node
# told: ranks of a torchrun: 1
edit("--nnodes=$nodes --nproc-per-node=4", "--nnodes=$nodes --nproc-per-node=1")

# %% the node's shell knows neither head nor port
# told: options without a value: --nnodes=, --rdzv-endpoint=:
# told: The kind of quotes decides
edit("\"cd '$PBS_O_WORKDIR'", "'cd $PBS_O_WORKDIR", '5"\n', "5'\n")

# %% each node names itself
# told: endpoints that differ: gpu-07:24711, gpu-11:24711
edit("$SLURM_JOB_ID --rdzv-endpoint=$head", "$SLURM_JOB_ID --rdzv-endpoint=$(hostname)")

# %% each node draws an id of its own
# told: values of --rdzv-id that differ
edit("--rdzv-id=$SLURM_JOB_ID", "--rdzv-id=$RANDOM")

# %% the static rendezvous, in which both nodes are number 0
# told: the nodes agree on their numbers
edit(
    "--rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$head:$port",
    "--master-addr=$head --master-port=$port",
)

# %% takes the list of nodes for a name
# told: endpoint on none of the job's nodes: gpu-[07,11]:24711
# told: how do you get one name out of it
edit('$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)', "$SLURM_JOB_NODELIST")

# %% a fixed port
# told: port that both jobs take: 29500
# told: Two jobs may share a node
edit("$PBS_JOBID --rdzv-endpoint=$head:$port", "$PBS_JOBID --rdzv-endpoint=$head:29500")

# %% the job's number is no port
# told: port that no user may choose: 69711, 69712
edit("$((20000 + SLURM_JOB_ID % 10000))", "$((65000 + SLURM_JOB_ID))")

# %% changes the folder in the script, not in what pbsdsh starts
# told: in which one does a command of pbsdsh?
edit("    head=$(head", '    cd "$PBS_O_WORKDIR"\n    head=$(head', "cd '$PBS_O_WORKDIR' && ", "")

# %% torchrun's option is one of the program's
# told: Where do torchrun's options belong?
edit("--rdzv-id=$SLURM_JOB_ID ", "", "5'\n", "5 --rdzv-id=$SLURM_JOB_ID'\n")

# %% the last command fails where all is well
# told: status if nothing fails: 1
edit('5"\n', '5"\n    [ -e failed ]\n')

# %% the pipe has the status of tee
# told: status if training fails on one node: 0
# told: A script has the status of its last command
edit("5'\n", "5' | tee digits.log\n")

#!/bin/bash
# What the job scripts of this folder share. Each begins with `source start_ranks.sh slurm` (or pbs)
# and then calls one of
#     start_ranks PROGRAM [OPTION ...]     one torchrun on every node of the job
#     start_data_parallel [OPTION ...]     one process on one node
# PROGRAM is the name of a chapter's program, or the path of a script of your own.
#
# On each node, this same file runs as `bash start_ranks.sh node ...` and starts torchrun there. All
# that a node must know stands on that line: pbsdsh hands on no environment.
#
# Settings, from the job script or the environment:
#     RANKS_PER_NODE   by default the GPUs that the job has on a node; without GPUs, its cores
#     RESULTS          the table that gets a row for each run; by default results.csv, beside this file

# Written from a job's nodes, by several jobs at once, so never relative to where a process stands.
JOB_SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MOST_CPU_RANKS=8  # more of them than that do not speed up models as small as ours
LATE=${LATE:-30}  # seconds that the other nodes get to end by themselves, once one has

refuse() {
    echo "$*" >&2
    exit 2
}

must_be_a_job() {
    local id=SLURM_JOB_ID submit=sbatch
    [ "$SCHEDULER" = slurm ] || id=PBS_JOBID submit=qsub
    [ -z "${!id:-}" ] || return 0
    command -v "$submit" > /dev/null || refuse "This is a job script, and there is no $submit on" \
        "this machine: type it on a login node of your cluster, or see README.md, 'Without a scheduler'."
    refuse "This is a job script, and no job is running: type  $submit $(basename "$0")"
}

# Sets PYTHON and CHAPTERS. Modules and conda environments come from site.sh, on every node anew.
set_up_environment() {
    local site=$JOB_SCRIPTS/site.sh words
    unset PYTHON  # one that happens to be set in the shell that has submitted is not meant
    if [ -e "$site" ]; then
        words=$(bash -n "$site" 2>&1) ||
            refuse "${words#"$JOB_SCRIPTS"/}: mend it, or start again from site.example.sh."
        trap '[ "${BASH_SOURCE[0]}" != "$JOB_SCRIPTS/site.sh" ] ||
            refuse "site.sh failed on $(hostname) at: $BASH_COMMAND"' ERR
        # shellcheck source=site.example.sh
        source "$site"
        trap - ERR
    fi
    PYTHON=${PYTHON:-$(dirname "$JOB_SCRIPTS")/.venv/bin/python}
    command -v "$PYTHON" > /dev/null || refuse "There is no $PYTHON on $(hostname): type  make setup" \
        "in $(dirname "$JOB_SCRIPTS"), or set PYTHON in site.sh."
    # find_spec looks for torch without importing it, which takes seconds.
    local find='from importlib.util import find_spec; assert find_spec("torch")'
    find+='; print(find_spec("ddp_workbook").submodule_search_locations[0] + "/chapters")'
    CHAPTERS=$("$PYTHON" -c "$find" 2> /dev/null) || refuse "$PYTHON on $(hostname) has no torch or" \
        "no ddp_workbook: set PYTHON in site.sh to one that has both."
}

# How many GPUs of this node the job may use. A node shows all of its GPUs to nvidia-smi, other
# jobs' too, unless the scheduler hides them: what the scheduler says comes first.
gpus_here() {
    if [ "$SCHEDULER" = slurm ] && [ -n "${SLURM_GPUS_ON_NODE:-}" ]; then
        echo "$SLURM_GPUS_ON_NODE"
    elif [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
        case $CUDA_VISIBLE_DEVICES in
            "" | -1 | NoDevFiles) echo 0 ;;
            *) tr ',' '\n' <<< "$CUDA_VISIBLE_DEVICES" | grep -c . ;;
        esac
    else
        nvidia-smi -L 2> /dev/null | grep -c '^GPU'
    fi
}

# How many cores of this node the job may use. nproc believes OMP_NUM_THREADS, which is not meant.
cores_here() {
    if [ "$SCHEDULER" = slurm ]; then
        echo "${SLURM_CPUS_ON_NODE:-1}"
    else
        echo "${NCPUS:-$(env -u OMP_NUM_THREADS nproc)}"
    fi
}

# One name a line, the head first: the job's first node, which runs the job script.
nodes() {
    if [ "$SCHEDULER" = slurm ]; then
        scontrol show hostnames "$SLURM_JOB_NODELIST"
    else
        awk '!seen[$0]++' "$PBS_NODEFILE"  # a line for each process; sort -u would move the head
    fi
}

# Below 32768, for Linux gives ports from there on to whoever connects, and torchrun takes seconds
# until it listens. Chosen by chance: two jobs on one node must not find the same.
free_port() {
    "$PYTHON" - << 'END'
import random, socket

for port in random.sample(range(20_000, 32_000), 100):
    with socket.socket() as listener:
        try:
            listener.bind(("", port))
        except OSError:
            continue
        print(port)
        break
END
}

# Sets JOB, NODES, GPUS, CORES (of a node), RANKS_PER_NODE, PROGRAM and RESULTS; $1 is the program.
prepare() {
    set_up_environment
    JOB=${SLURM_JOB_ID:-}
    [ "$SCHEDULER" = slurm ] || JOB=${PBS_JOBID%%.*}
    mapfile -t NODES < <(nodes)
    GPUS=$(gpus_here) CORES=$(cores_here)
    if [ -z "${RANKS_PER_NODE:-}" ]; then
        RANKS_PER_NODE=$((GPUS > 0 ? GPUS : CORES < MOST_CPU_RANKS ? CORES : MOST_CPU_RANKS))
    fi
    [[ $RANKS_PER_NODE =~ ^[1-9][0-9]*$ ]] ||
        refuse "RANKS_PER_NODE=$RANKS_PER_NODE: it is the number of ranks on each node, from 1 on."
    PROGRAM=$CHAPTERS/$1.py
    [ -e "$PROGRAM" ] || PROGRAM=$(realpath "$1")  # a node starts where it likes
    [ -f "$PROGRAM" ] || refuse "There is no program $1: neither a chapter's nor a file $PROGRAM."
    RESULTS=${RESULTS:-$JOB_SCRIPTS/results.csv}
}

# Makes the run's folder, and says what starts; $1 is the number of ranks.
announce() {
    FOLDER=$JOB_SCRIPTS/runs/$(basename "$PROGRAM" .py)-$1-ranks-$JOB
    mkdir -p "$FOLDER" || refuse "The run's folder cannot be made: submit from a folder that all nodes can write."
    touch "$FOLDER/started"
    echo "Job $JOB: $1 ranks on ${NODES[*]}, each with $GPUS GPUs and $CORES cores for the job." \
        "Logs: ${FOLDER#"$JOB_SCRIPTS"/}"
}

start_ranks() {
    prepare "$1"
    announce $((RANKS_PER_NODE * ${#NODES[@]}))
    local port threads=$((CORES > RANKS_PER_NODE ? CORES / RANKS_PER_NODE : 1))
    port=$(free_port)
    [ -n "$port" ] || refuse "No port from 20000 to 31999 is free on ${NODES[0]}: other jobs hold them all."
    shift
    "start_by_$SCHEDULER" "$JOB_SCRIPTS/start_ranks.sh" node "$SCHEDULER" "$FOLDER" "${#NODES[@]}" \
        "$RANKS_PER_NODE" "$GPUS" "$threads" "${NODES[0]}:$port" "$JOB" \
        "$PROGRAM" --results "$RESULTS" "$@" && return
    local code=$?
    say_who_failed_first
    return "$code"
}

# Each node's torchrun reports the first rank of its own that failed. On all nodes but one, that is
# a rank which has lost its connection to the one that really failed first.
say_who_failed_first() {
    local file
    file=$(find "$FOLDER" -name error.json -newer "$FOLDER/started" -printf '%T@ %p\n' | sort -n | head -1)
    [ -n "$file" ] || return 0
    "$PYTHON" - "${file#* }" >&2 << 'END'
import json, sys
from pathlib import Path

file = Path(sys.argv[1])
message = json.loads(file.read_text())["message"]
words = message if isinstance(message, str) else message["message"]
print(f"The first to fail was local rank {file.parts[-2]} on {file.parts[-5]}: {words}")
print("What it printed:", file.with_name("stderr.log"))
END
}

# DataParallel knows no ranks: one process drives all GPUs of its node, and cannot leave it.
start_data_parallel() {
    prepare data_parallel
    announce 1
    [ "$GPUS" -lt 2 ] || set -- --replicas "$GPUS" "$@"
    "$PYTHON" "$PROGRAM" --results "$RESULTS" "$@" 2>&1 | tee "$FOLDER/log"
    return "${PIPESTATUS[0]}"
}

start_by_slurm() {
    # srun asks for the cores itself: since Slurm 22.05 it does not take them over from the job.
    [ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
    # Not --kill-on-bad-exit=1, which some sites set: it would silence the node that has failed
    # second, and torchrun's report of the root cause with it.
    srun --nodes="${#NODES[@]}" --ntasks="${#NODES[@]}" --ntasks-per-node=1 --kill-on-bad-exit=0 \
        --wait="$LATE" /bin/bash "$@" < /dev/null &
    wait_for $!
}

# pbsdsh ends with 0, whatever its commands end with, and waits for all of them. So each node leaves
# its exit code in a file.
start_by_pbs() {
    command -v pbsdsh > /dev/null ||
        refuse "There is no pbsdsh on $(hostname): add the folder of PBS's programs to PATH in site.sh."
    local codes=$FOLDER/exit-codes
    rm -rf "$codes"
    mkdir "$codes"
    # A login shell knows `module`; what this script knows of it does not come along.
    pbsdsh -- /bin/bash --login "$@" < /dev/null &
    local pbsdsh=$!
    stop_late_nodes "$pbsdsh" "$codes" &
    local watch=$!
    wait_for "$pbsdsh"
    kill "$watch" 2> /dev/null
    local ended=() patience=$LATE
    while [ "${#ended[@]}" -lt "${#NODES[@]}" ] && [ $((patience--)) -gt 0 ]; do
        mapfile -t ended < <(cat "$codes"/* 2> /dev/null)  # another node's file may be seen late
        [ "${#ended[@]}" -eq "${#NODES[@]}" ] || sleep 1
    done
    [ "${#ended[@]}" -eq "${#NODES[@]}" ] || ended+=(1)  # a node that has left none has failed
    return "$(printf '%s\n' "${ended[@]}" | sort -n | tail -1)"
}

stop_late_nodes() {
    local left=$LATE
    while kill -0 "$1" 2> /dev/null; do
        sleep 1
        if compgen -G "$2/*" > /dev/null && [ $((left--)) -eq 0 ]; then
            echo "A node has ended $LATE seconds ago, and another one has not: it is stopped." >&2
            kill "$1"
        fi
    done
}

# Waits for a process and returns its exit code. A signal that the job script traps ends `wait`, too.
wait_for() {
    while kill -0 "$1" 2> /dev/null; do wait "$1"; done
    wait "$1"
}

# For trainings that stop before their time is over and go on in another job. Their program looks
# after each epoch whether there is a file STATE.stop; if so it saves itself in STATE and ends.

ask_to_stop() {
    echo "The time is nearly over: the ranks save after this epoch, in ${1#"$JOB_SCRIPTS"/}."
    mkdir -p "$(dirname "$1")"
    touch "$1.stop"
}

# PBS sends no signal that could be ordered.
ask_to_stop_later() {
    (
        for ((second = 0; second < $1; second++)); do
            sleep 1
            kill -0 $$ 2> /dev/null || exit  # the job has ended
        done
        ask_to_stop "$2"
    ) &
}

# Whether this run has saved itself because it was asked to.
has_stopped_early() {
    [ "$1" -nt "$FOLDER/started" ]
}

# On each node

start_on_this_node() {
    SCHEDULER=$1
    local folder=$2 nodes=$3 ranks=$4 gpus=$5 endpoint=$7 job=$8 host here
    export OMP_NUM_THREADS=$6
    shift 8
    host=$(hostname)
    cd "$JOB_SCRIPTS" || exit
    set_up_environment
    here=$(gpus_here)
    # Ranks on a GPU and ranks on the CPU would wait for each other until the time is over.
    [ "$here" -eq "$gpus" ] || refuse "$host has $here GPUs for this job, and ${endpoint%:*} has $gpus:" \
        "ask for nodes that are alike."
    # Else ranks that are started again may find the addresses of those before them (torch 2.13).
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    # shellcheck disable=SC2016  # torchrun fills in the rank
    export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
    # This is torchrun, run by the Python that was chosen. The nodes meet at the endpoint, which the
    # head opens, and agree there on who gets which ranks.
    "$PYTHON" -m torch.distributed.run --nnodes="$nodes" --nproc-per-node="$ranks" \
        --rdzv-backend=c10d --rdzv-id="$job" --rdzv-endpoint="$endpoint" \
        --log-dir="$folder/$host" --redirects=3 --tee=0:3 "$@"
}

leave_exit_code() {
    local codes=$2/exit-codes host
    host=$(hostname)
    # pbsdsh runs its command once for each process that the job may start: mpiprocs times a node.
    mkdir "$codes/.$host" 2> /dev/null || exit 0
    (start_on_this_node "$@")
    echo $? > "$codes/$host"
}

case ${1:-} in
    slurm | pbs)
        SCHEDULER=$1
        must_be_a_job
        ;;
    node)
        shift
        if [ "$1" = pbs ]; then leave_exit_code "$@"; else start_on_this_node "$@"; fi
        ;;
esac

#!/bin/bash
# What the job scripts of this folder share. Each begins with `source start_ranks.sh slurm` (or pbs)
# and then calls one of
#     start_ranks PROGRAM [OPTION ...]     one torchrun on every node of the job
#     start_data_parallel [OPTION ...]     one process on one node
# PROGRAM is the name of a chapter's program, or the path of a script of your own.
#
# On each node, this same file runs as `bash start_ranks.sh node ...` and starts torchrun there. All
# that a node needs is on that line, because pbsdsh passes on no environment.
#
# Settings, from the job script or the environment:
#     RANKS_PER_NODE   by default the GPUs that the job has on a node; without GPUs, its cores
#     RESULTS          the table that gets a row per run; by default results.csv in this folder
#     LATE             seconds that the other nodes get to finish once one has; by default 30

JOB_SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
MOST_CPU_RANKS=8  # with models as small as ours, more ranks than that only wait for each other
LATE=${LATE:-30}

refuse() {
    echo "$*" >&2
    exit 2
}

must_be_a_job() {
    local id=SLURM_JOB_ID submit=sbatch
    [ "$SCHEDULER" = slurm ] || id=PBS_JOBID submit=qsub
    [ -z "${!id:-}" ] || return 0
    command -v "$submit" > /dev/null || refuse "This is a job script, and there is no $submit on" \
        "this machine: use a login node of your cluster, or see README.md, 'Without a scheduler'."
    refuse "This is a job script, and no job is running: type  $submit $(basename "$0")"
}

# Sets PYTHON and CHAPTERS. Modules and conda environments come from site.sh, on every node anew.
set_up_environment() {
    local site=$JOB_SCRIPTS/site.sh words
    unset PYTHON  # Slurm passes on the environment of the shell that submitted; not this one
    if [ -e "$site" ]; then
        words=$(bash -n "$site" 2>&1) ||
            refuse "${words#"$JOB_SCRIPTS"/}: fix it, or start again from site.example.sh."
        trap '[ "${BASH_SOURCE[0]}" != "$JOB_SCRIPTS/site.sh" ] ||
            refuse "site.sh failed on $(hostname) at: $BASH_COMMAND"' ERR
        # shellcheck source=site.example.sh
        source "$site"
        trap - ERR
    fi
    PYTHON=${PYTHON:-$(dirname "$JOB_SCRIPTS")/.venv/bin/python}
    command -v "$PYTHON" > /dev/null || refuse "There is no $PYTHON on $(hostname): type  make" \
        "setup in $(dirname "$JOB_SCRIPTS"), or set PYTHON in site.sh."
    # find_spec looks for torch without importing it, which takes seconds.
    local find='from importlib.util import find_spec; assert find_spec("torch")'
    find+='; print(find_spec("ddp_workbook").submodule_search_locations[0] + "/chapters")'
    CHAPTERS=$("$PYTHON" -c "$find" 2> /dev/null) || refuse "$PYTHON on $(hostname) has no torch" \
        "or no ddp_workbook: set PYTHON in site.sh to one that has both."
}

# GPUs of this node that the job may use. nvidia-smi comes last: unless the scheduler hides them, it
# also lists the GPUs of other jobs.
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

# Cores of this node that the job may use. nproc would return OMP_NUM_THREADS, if that is set.
cores_here() {
    if [ "$SCHEDULER" = slurm ]; then
        echo "${SLURM_CPUS_ON_NODE:-1}"
    else
        echo "${NCPUS:-$(env -u OMP_NUM_THREADS nproc)}"
    fi
}

# The job's nodes, one name a line; the first is the head, which runs the job script.
nodes() {
    if [ "$SCHEDULER" = slurm ]; then
        scontrol show hostnames "$SLURM_JOB_NODELIST"
    else
        awk '!seen[$0]++' "$PBS_NODEFILE"  # one line per process; sort -u would move the head
    fi
}

# Below 32768: torchrun needs seconds until it listens, and Linux hands out the ports above to every
# outgoing connection. Random, so that two jobs on one node do not find the same one.
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
    [ -e "$PROGRAM" ] || PROGRAM=$(realpath "$1")  # on a node, another folder is current
    [ -f "$PROGRAM" ] || refuse "There is no program $1: neither a chapter's nor a file $PROGRAM."
    RESULTS=${RESULTS:-$JOB_SCRIPTS/results.csv}
}

# Makes the run's folder FOLDER, and says what starts; $1 is the number of ranks.
announce() {
    FOLDER=$JOB_SCRIPTS/runs/$(basename "$PROGRAM" .py)-$1-ranks-$JOB
    mkdir -p "$FOLDER" || refuse "$FOLDER cannot be made: submit from a folder that you can write."
    touch "$FOLDER/started"
    echo "Job $JOB: $1 ranks on ${NODES[*]}, each with $GPUS GPUs and $CORES cores for the job." \
        "Logs: ${FOLDER#"$JOB_SCRIPTS"/}"
}

start_ranks() {
    prepare "$1"
    announce $((RANKS_PER_NODE * ${#NODES[@]}))
    local port threads=$((CORES > RANKS_PER_NODE ? CORES / RANKS_PER_NODE : 1))
    port=$(free_port)
    [ -n "$port" ] || refuse "No port from 20000 to 31999 is free on ${NODES[0]}: submit again."
    shift
    "start_by_$SCHEDULER" "$JOB_SCRIPTS/start_ranks.sh" node "$SCHEDULER" "$FOLDER" \
        "${#NODES[@]}" "$RANKS_PER_NODE" "$GPUS" "$threads" "${NODES[0]}:$port" "$JOB" \
        "$PROGRAM" --results "$RESULTS" "$@" && return
    local code=$?
    say_who_failed_first
    return "$code"
}

# Each torchrun reports the first of its own ranks to fail. On all nodes but one, that rank only
# lost its connection to the one that really failed first.
say_who_failed_first() {
    local file
    file=$(find "$FOLDER" -name error.json -newer "$FOLDER/started" -printf '%T@ %p\n' |
        sort -n | head -1)
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

# DataParallel has no ranks: one process drives all GPUs of its node.
start_data_parallel() {
    prepare data_parallel
    announce 1
    [ "$GPUS" -lt 2 ] || set -- --replicas "$GPUS" "$@"
    "$PYTHON" "$PROGRAM" --results "$RESULTS" "$@" 2>&1 | tee "$FOLDER/log"
    return "${PIPESTATUS[0]}"
}

start_by_slurm() {
    # Since Slurm 22.05, srun does not inherit the job's --cpus-per-task.
    [ -z "${SLURM_CPUS_PER_TASK:-}" ] || export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
    # A job submitted with --export=NONE would pass on nothing, not even PATH.
    export SLURM_EXPORT_ENV=ALL
    # --kill-on-bad-exit=1, the default of some sites, would kill the other nodes' torchrun before
    # it can print its report, and with it perhaps the root cause.
    srun --nodes="${#NODES[@]}" --ntasks="${#NODES[@]}" --ntasks-per-node=1 --kill-on-bad-exit=0 \
        --wait="$LATE" /bin/bash "$@" < /dev/null &
    wait_for $!
}

# OpenPBS's pbsdsh waits for all of its commands, and then returns 0 whatever they returned. So each
# node leaves its exit code in a file.
start_by_pbs() {
    command -v pbsdsh > /dev/null ||
        refuse "There is no pbsdsh on $(hostname): add PBS's programs to PATH in site.sh."
    local codes=$FOLDER/exit-codes
    rm -rf "$codes"
    mkdir "$codes"
    # A login shell: the function `module` is not passed on either.
    pbsdsh -- /bin/bash --login "$@" < /dev/null &
    local pbsdsh=$!
    stop_late_nodes "$pbsdsh" "$codes" &
    local watch=$!
    wait_for "$pbsdsh"
    kill "$watch" 2> /dev/null
    local ended=() patience=$LATE
    while [ "${#ended[@]}" -lt "${#NODES[@]}" ] && [ $((patience--)) -gt 0 ]; do
        mapfile -t ended < <(cat "$codes"/* 2> /dev/null)  # NFS may show another node's file late
        [ "${#ended[@]}" -eq "${#NODES[@]}" ] || sleep 1
    done
    [ "${#ended[@]}" -eq "${#NODES[@]}" ] || ended+=(1)  # a node without a file has failed
    return "$(printf '%s\n' "${ended[@]}" | sort -n | tail -1)"
}

stop_late_nodes() {
    local left=$LATE
    while kill -0 "$1" 2> /dev/null; do
        sleep 1
        if compgen -G "$2/*" > /dev/null && [ $((left--)) -eq 0 ]; then
            echo "One node ended $LATE seconds ago, and another still runs: it is stopped." >&2
            kill "$1"
        fi
    done
}

# Waits for a process and returns its exit code; `wait` alone returns on any signal that is trapped.
wait_for() {
    while kill -0 "$1" 2> /dev/null; do wait "$1"; done
    wait "$1"
}

# For trainings that stop before the time limit and continue in another job. After every epoch their
# program checks for a file STATE.stop; if it is there, the program saves itself in STATE and ends.

ask_to_stop() {
    echo "The time limit is near: the ranks save after this epoch, in ${1#"$JOB_SCRIPTS"/}."
    mkdir -p "$(dirname "$1")"
    touch "$1.stop"
}

# PBS has no option that sends a signal before the time limit.
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
    # Ranks on a GPU and ranks on the CPU would wait for each other until the time limit.
    [ "$here" -eq "$gpus" ] || refuse "$host has $here GPUs for this job, and ${endpoint%:*} has" \
        "$gpus: ask for nodes that are alike."
    # Without it, restarted ranks may find the addresses of the earlier ones (seen with torch 2.13).
    export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
    # shellcheck disable=SC2016  # torchrun fills in the rank
    export TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='[rank ${rank}] '
    # torchrun, run by the chosen Python. The head opens the endpoint; the nodes meet there and
    # agree on who gets which ranks.
    "$PYTHON" -m torch.distributed.run --nnodes="$nodes" --nproc-per-node="$ranks" \
        --rdzv-backend=c10d --rdzv-id="$job" --rdzv-endpoint="$endpoint" \
        --log-dir="$folder/$host" --redirects=3 --tee=0:3 "$@"
}

leave_exit_code() {
    local codes=$2/exit-codes host
    host=$(hostname)
    # pbsdsh runs its command mpiprocs times on each node; the first one counts.
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

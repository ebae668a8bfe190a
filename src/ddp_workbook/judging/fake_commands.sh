#!/bin/bash
# Stands in for the commands of a cluster, under whose names the check of fix_job_script links
# it: srun and pbsdsh start a command on pretend nodes, torchrun only notes that it was started.
# As bash 3.2 reads it, which macOS has. A folder above the links holds:
#   nodes    name and address of each node of the job, in a line
#   started  a file for each torchrun: node, folder, and the words of the command
#   fails    where it is there, torchrun fails on the last node
#   python   the path of a real Python, for `python -c`
set -u
bin=${0%/*} me=${0##*/}
lab=${bin%/*}
PATH=$bin:/usr/bin:/bin # whatever a profile has made of it

names() { cut -d' ' -f1 "$lab/nodes"; }
address_of() { sed -n "s/^$1 //p" "$lab/nodes"; }

# on NODE FOLDER command...: runs it there
on() {
    local node=$1 folder=$2
    shift 2
    (cd "$folder" && STAND_IN_NODE=$node exec "$@")
}

# bare NODE command...: what a process gets that pbsdsh or ssh starts: the home folder, and PBS_*
bare() {
    local node=$1 variables=() line
    shift
    while IFS= read -r line; do variables+=("$line"); done < <(env | grep '^PBS_')
    on "$node" "$HOME" env -i HOME="$HOME" PATH="$PATH" STAND_IN_NODE="$node" \
        ${variables[@]+"${variables[@]}"} "$@"
}

# Waits for all that was started in the background; fails if one of them failed.
all_ended() {
    local status=0 job
    for job in $(jobs -p); do wait "$job" || status=$?; done
    exit "$status"
}

note_start() {
    local file
    file=$(mktemp "$lab/started/XXXXXX")
    printf '%s\0' "$STAND_IN_NODE" "$PWD" "$me" "$@" > "$file"
    [ ! -e "$lab/fails" ] || [ "$STAND_IN_NODE" != "$(names | tail -n 1)" ]
}

# Options that take a value, which may be the next word.
VALUED=" -N -n -c -w -G -o -e -i -m -t -p -A -J -q -C -x -r -d --nodes --ntasks --ntasks-per-node \
--cpus-per-task --nodelist --gpus --gpus-per-node --gpus-per-task --output --error --input --time \
--job-name --export --cpu-bind --gpu-bind --mem --mpi --chdir --exclude -np --np -f -ppn --ppn \
--hostfile -hostfile --machinefile -machinefile --host -host --hosts -hosts -npernode --npernode \
--map-by -map-by "

# Takes the options off the words; leaves the command in `rest`, and what some of them said.
options() {
    nodes='' tasks='' per_node='' list='' rest=()
    local option value
    while [ $# -gt 0 ]; do
        option=$1 value=
        case $1 in
            --) shift; break ;;
            --*=*) option=${1%%=*} value=${1#*=} ;;
            -*) case $VALUED in
                    *" $1 "*) value=${2-}; [ $# -lt 2 ] || shift ;;
                    *) [ "${1#--}" != "$1" ] || { option=${1:0:2} value=${1:2}; } ;;
                esac ;;
            *) break ;;
        esac
        shift
        case $option in
            -N | --nodes) nodes=${value%%-*} ;;
            -n | --ntasks | -np | --np) tasks=$value ;;
            --ntasks-per-node | -ppn | --ppn | -npernode | --npernode) per_node=$value ;;
            -w | --nodelist | --host | -host) list=${value//,/ } ;;
            --map-by | -map-by) case $value in ppr:*:node*) per_node=${value#ppr:} ;; esac ;;
        esac
    done
    per_node=${per_node%%:*}
    rest=("$@")
}

case $me in
    torchrun)
        note_start "$@"
        ;;
    python | python3)
        case ${1-} in
            -c | -) exec "$(cat "$lab/python")" "$@" ;;
            --version | -V) echo "Python 3" ;;
            *) note_start "$@" ;;
        esac
        ;;
    bash) # without -l: a login shell would forget which commands stand in
        words=()
        while [ $# -gt 0 ]; do
            case $1 in
                --login | -l) ;;
                -lc | -cl | -ilc | -lic) words+=(-c) ;;
                *) break ;;
            esac
            shift
        done
        exec /bin/bash ${words[@]+"${words[@]}"} "$@"
        ;;
    srun)
        options "$@"
        # As Slurm 22.05: --ntasks-per-node does not hold against the number of tasks of the job.
        if [ -n "$list" ]; then hosts=$list; else hosts=$(names); fi
        # shellcheck disable=SC2086 # a name is a word
        set -- $hosts
        [ -z "$nodes" ] || set -- "${@:1:$nodes}"
        tasks=${tasks:-${SLURM_NTASKS:-}}
        : "${tasks:=$(($# * ${per_node:-1}))}"
        task=0 node=0
        for host; do
            share=$(((tasks + $# - 1 - node) / $#)) local_id=0
            while [ "$local_id" -lt "$share" ]; do
                SLURM_PROCID=$task SLURM_NODEID=$node SLURM_LOCALID=$local_id SLURM_STEP_ID=0 \
                    SLURM_NTASKS=$tasks SLURMD_NODENAME=$host on "$host" "$PWD" \
                    ${rest[@]+"${rest[@]}"} &
                task=$((task + 1)) local_id=$((local_id + 1))
            done
            node=$((node + 1))
        done
        all_ended
        ;;
    pbsdsh)
        only=
        while [ $# -gt 0 ]; do
            case $1 in
                --) shift; break ;;
                -n) only=$2; shift 2 ;;
                -c) shift 2 ;;
                -o | -s | -v | -u) shift ;;
                -*) echo "pbsdsh: illegal option $1" >&2; exit 2 ;;
                *) break ;;
            esac
        done
        number=0
        while read -r host; do
            if [ -z "$only" ] || [ "$only" = "$number" ]; then bare "$host" "$@" & fi
            number=$((number + 1))
        done < "$PBS_NODEFILE"
        wait # and then 0, as OpenPBS's does whatever its commands have returned
        ;;
    ssh | pbs_tmrsh)
        while [ $# -gt 0 ]; do
            case $1 in
                -o | -p | -i | -l | -F) shift 2 ;;
                -*) shift ;;
                *) break ;;
            esac
        done
        host=${1#*@}
        shift
        bare "$host" bash -c "$*"
        ;;
    mpiexec | mpirun)
        options "$@"
        if [ -n "$list" ]; then hosts=$list; else hosts=$(names); fi
        [ -n "$per_node$nodes" ] || [ -z "${PBS_NODEFILE-}" ] || hosts=$(cat "$PBS_NODEFILE")
        # shellcheck disable=SC2086 # a name is a word
        set -- $hosts
        task=0
        while [ "$task" -lt "${tasks:-$#}" ]; do
            place=$((task % $# + 1))
            host=${!place}
            PMI_RANK=$task on "$host" "$PWD" \
                ${rest[@]+"${rest[@]}"} &
            task=$((task + 1))
        done
        all_ended
        ;;
    hostname)
        case ${1-} in
            -i | -I | --ip-address | --all-ip-addresses) address_of "$STAND_IN_NODE" ;;
            *) echo "$STAND_IN_NODE" ;;
        esac
        ;;
    uname)
        [ "${1-}" != -n ] || { echo "$STAND_IN_NODE"; exit; }
        exec /usr/bin/uname "$@"
        ;;
    getent) # getent hosts NAME
        echo "$(address_of "${3-}") ${3-}"
        ;;
    scontrol)
        case "${1-} ${2-}" in
            "show hostname"*) [ "${3-$SLURM_JOB_NODELIST}" = "$SLURM_JOB_NODELIST" ] && names ;;
            *) true ;;
        esac
        ;;
    nvidia-smi)
        for ((gpu = 0; gpu < $(cat "$lab/gpus"); gpu++)); do echo "GPU $gpu: pretended"; done
        ;;
    wc) # that of macOS puts blanks before the number
        exec /usr/bin/wc "$@" | sed 's/^ *//'
        ;;
    sleep)
        /bin/sleep 0.1 # not at once: a loop that waits would take a whole processor
        ;;
    *) # module, conda, ...: take no time and say nothing
        true
        ;;
esac

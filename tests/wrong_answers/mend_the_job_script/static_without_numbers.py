# wrong: the static rendezvous, in which both nodes are number 0
# told: the nodes agree on their numbers


def mend_the_job_script() -> tuple[str, str]:
    """The texts of both scripts, fixed: that for Slurm, that for PBS."""
    slurm = r"""
    #!/bin/bash
    #SBATCH --job-name=digits
    #SBATCH --nodes=2
    #SBATCH --ntasks-per-node=1
    #SBATCH --cpus-per-task=32
    #SBATCH --gpus-per-node=4
    #SBATCH --time=00:30:00
    module load pytorch

    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    port=$((20000 + SLURM_JOB_ID % 10000))
    export head port
    srun --cpus-per-task=32 bash -c 'torchrun --nnodes=$SLURM_NNODES --nproc-per-node=4 \
        --master-addr=$head --master-port=$port \
        train.py --epochs 5'
    """
    pbs = r"""
    #!/bin/bash
    #PBS -N digits
    #PBS -l select=2:ncpus=32:ngpus=4
    #PBS -l place=scatter
    #PBS -l walltime=00:30:00
    #PBS -j oe

    head=$(head -n 1 "$PBS_NODEFILE")
    nodes=$(sort -u "$PBS_NODEFILE" | wc -l)
    port=$((20000 + ${PBS_JOBID%%.*} % 10000))
    pbsdsh -- bash -lc "cd '$PBS_O_WORKDIR' && torchrun --nnodes=$nodes --nproc-per-node=4 \
        --rdzv-backend=c10d --rdzv-id=$PBS_JOBID --rdzv-endpoint=$head:$port \
        train.py --epochs 5"
    """
    return slurm, pbs

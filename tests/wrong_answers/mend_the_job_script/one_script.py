# wrong: returns the first script alone
# told: Is one of the two missing?


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
        --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID --rdzv-endpoint=$head:$port \
        train.py --epochs 5'
    """
    return slurm

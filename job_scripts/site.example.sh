# shellcheck shell=bash
# What is different at your site. Copy this file to site.sh, and uncomment what you need:
#
#     cp site.example.sh site.sh
#
# Every job reads site.sh on each of its nodes. git ignores it.

# Python. By default it is .venv of this checkout, made by `make setup`.
# module load python/3.12 cuda/12.6
# source /shared/environments/workbook/bin/activate
# PYTHON=python

# Network interface, if the ranks of two nodes cannot connect; `ip -brief address` on a node lists
# them. gloo is for ranks on the CPU, NCCL for GPUs.
# export GLOO_SOCKET_IFNAME=ib0
# export NCCL_SOCKET_IFNAME=ib0

# Account, and partition or queue, for all scripts at once. The scheduler needs them before the job
# starts: type `source site.sh` in the shell from which you submit. The first line is for Slurm; PBS
# has no such variables, so the second line wraps qsub.
# export SBATCH_ACCOUNT=my_project SBATCH_PARTITION=gpu
# qsub() { command qsub -A my_project -q gpu "$@"; }

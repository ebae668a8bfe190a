# shellcheck shell=bash
# What is different at your site. Copy this file to site.sh, and take the # away where you need it:
#
#     cp site.example.sh site.sh
#
# Every job reads site.sh, on each of its nodes. It is yours: git does not see it.

# The environment. Without a line here it is .venv of this checkout, which `make setup` has made.
# module load python/3.12 cuda/12.6
# source /shared/environments/workbook/bin/activate
# PYTHON=python

# The network interface, if ranks wait for each other in vain; `ip -brief address` on a node names
# them. The first line is for ranks on the CPU, the second for GPUs.
# export GLOO_SOCKET_IFNAME=ib0
# export NCCL_SOCKET_IFNAME=ib0

# Who pays, and where jobs go, once for all scripts. This has to be known before a job runs: type
# `source site.sh` in the shell from which you submit. Slurm reads variables; PBS has none, so that
# qsub is told here.
# export SBATCH_ACCOUNT=my_project SBATCH_PARTITION=gpu
# qsub() { command qsub -A my_project -q gpu "$@"; }

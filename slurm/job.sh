# SPDX-License-Identifier: MIT
# The part that all job scripts share: the scripts beside it read it, `garonne plan --sbatch` copies it into those
# that it writes. Before it stand
#   run_file, options   of `garonne train`
#   garonne             the program, or several words that start it, as "apptainer run garonne.sif"
#   launcher            srun or mpirun
#   network, interface  of the nodes: ethernet, infiniband, omni-path or slingshot, else nothing is set; a device by name
#   goes_on             requeue, chain (the next element of an array) or nothing: who goes on after the time limit
#   most_starts         of one job
#   suffix              optional: what comes after the name of the run directory
# shellcheck shell=bash disable=SC2154

ranks=${SLURM_NTASKS:-1}
on_node=${SLURM_NTASKS_PER_NODE:-}
threads=${SLURM_CPUS_PER_TASK:-1}
job=${SLURM_JOB_ID:-none}
# A path may have blanks in it, too.
program=("$garonne")
command -v "$garonne" >/dev/null || read -r -a program <<<"$garonne"

# option_of NAME: what an option of `garonne train` says; the last one counts.
option_of() {
  local found='' k
  for ((k = 0; k < ${#options[@]}; k++)); do
    case ${options[k]} in
      "--$1") found=${options[k + 1]:-} ;;
      "--$1="*) found=${options[k]#*=} ;;
    esac
  done
  printf '%s' "$found"
}

# run_directory: that of the options, else of the run file.
run_directory() {
  local given
  given=$(option_of run.directory)
  [ -n "$given" ] || given=$(awk '
    /^[ \t]*\[/ { table = $0; sub(/#.*/, "", table); gsub(/[][ \t]/, "", table) }
    (table == "run" && /^[ \t]*directory[ \t]*=/) || (table == "" && /^[ \t]*run\.directory[ \t]*=/) {
      quote = index($0, "\"") ? "\"" : "\047"
      split($0, parts, quote)
      print parts[2]
    }' "$run_file")
  printf '%s' "${given:-runs/default}"
}

# What launchers and networks need. What is set already stays.
set_environment() {
  # srun does not take --cpus-per-task over from sbatch since Slurm 22.05, and would give each rank one core.
  export SRUN_CPUS_PER_TASK=$threads OMP_NUM_THREADS=$threads
  # mpirun kills its ranks twice as many seconds after it was told to end, with this as late as Slurm kills all. It waits
  # as long, too, where ranks have ended by themselves with another code than 0.
  export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-15}
  case $network in
    infiniband)
      export UCX_HANDLE_ERRORS=${UCX_HANDLE_ERRORS:-none} # or it hides what failed
      export NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PXB}
      ;;
    slingshot)
      # NCCL fails at the start where the plugin for this network is missing, in place of taking TCP, 20 times slower.
      export NCCL_NET=${NCCL_NET:-AWS Libfabric} NCCL_NET_GDR_LEVEL=${NCCL_NET_GDR_LEVEL:-PHB}
      export NCCL_CROSS_NIC=${NCCL_CROSS_NIC:-1} NCCL_PROTO=${NCCL_PROTO:-^LL128}
      export FI_CXI_DEFAULT_CQ_SIZE=${FI_CXI_DEFAULT_CQ_SIZE:-131072}
      export FI_CXI_DEFAULT_TX_SIZE=${FI_CXI_DEFAULT_TX_SIZE:-16384}
      export FI_CXI_DISABLE_HOST_REGISTER=${FI_CXI_DISABLE_HOST_REGISTER:-1}
      export FI_CXI_RX_MATCH_MODE=${FI_CXI_RX_MATCH_MODE:-software}
      export FI_MR_CACHE_MONITOR=${FI_MR_CACHE_MONITOR:-userfaultfd}
      ;;
    ethernet | omni-path | '') ;;
    *) echo "network is ethernet, infiniband, omni-path or slingshot, not $network" >&2; exit 2 ;;
  esac
  if [ -n "$interface" ]; then
    export OMPI_MCA_btl_tcp_if_include=${OMPI_MCA_btl_tcp_if_include:-$interface}
    export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$interface}
  fi
}

# counted NUMBER WORD: "1 thread", "2 threads".
counted() {
  if [ "$1" = 1 ]; then printf '%s %s' "$1" "$2"; else printf '%s %ss' "$1" "$2"; fi
}

say_what_runs() {
  echo "== start $((${SLURM_RESTART_COUNT:-0} + 1)) of job $job on ${SLURM_JOB_NODELIST:-$(hostname)}, $(date)"
  echo "== $(counted "$ranks" rank) of $(counted "$threads" thread): $garonne train $run_file ${options[*]}"
  # Only names that matter to the run, so that nothing private comes into the log.
  env | grep -E '^(SLURM_(JOB|ARRAY|NTASKS|NNODES|CPUS)|SRUN_|OMP_|OMPI_MCA_|UCX_|FI_|NCCL_|GARONNE_|CUDA_VISIBLE)' | sort || true
  command -v "$launcher" || {
    echo "$launcher is not found: have this script load the module that the site has it in" >&2
    exit 2
  }
  "${program[@]}" --version
}

# mark_of_stop: what tells one file `stopped` of the run from another; nothing where there is none.
mark_of_stop() {
  stat -c '%i %y' "$(run_directory)/stopped" 2>/dev/null || true
}

# stopped_since_start: whether the run says that it has stopped with its checkpoint in place.
stopped_since_start() {
  local mark
  mark=$(mark_of_stop)
  [ -n "$mark" ] && [ "$mark" != "$stopped_before" ]
}

# In the background, so that this shell can take signals; srun and mpirun hand theirs on to their ranks.
launch() {
  local command
  case $launcher in
    srun)
      command=(srun --mpi=pmix --kill-on-bad-exit=1 --wait=60 "--distribution=block,Pack" "--cpu-bind=${CPU_BIND:-cores}")
      ;;
    mpirun)
      # In order of the nodes, as many on each as plans count with.
      if [ -n "$on_node" ]; then
        command=(mpirun -n "$ranks" --map-by "ppr:${on_node%%(*}:node:PE=$threads" --bind-to core)
      else
        command=(mpirun -n "$ranks" --map-by "slot:PE=$threads" --bind-to core)
      fi
      ;;
  esac
  "${command[@]}" "${program[@]}" train "$run_file" --run.threads "$threads" "${options[@]}" &
  launched=$!
}

# A signal ends `wait` early, without the launcher's exit code.
await_ranks() {
  while :; do
    interrupted=no code=0
    wait "$launched" || code=$?
    [ "$interrupted" = yes ] || break
  done
}

# Ranks that mpirun was told to end leave processes behind that write; where this shell ended, so would they.
await_parting() {
  local directory k
  directory=$(run_directory)
  for ((k = 0; k < 600; k++)); do
    compgen -G "$directory/.parting-*" >/dev/null || return 0
    sleep 0.2 || true
  done
}

warned=no ended=no
# shellcheck disable=SC2317 # called by traps
hand_on() {
  interrupted=yes warned=yes
  echo "== USR1: asking the ranks for a checkpoint, $(date)"
  kill -USR1 "$launched" || true
}
# shellcheck disable=SC2317
told_to_end() {
  # Slurm tells the ranks as well.
  interrupted=yes ended=yes
  echo "== TERM: the job is to end, $(date)"
}

# Without a grid in the run file or among the options, all ranks are data ranks.
if [[ " ${options[*]} " != *" --grid."* ]] &&
  ! grep -Eq '^[[:space:]]*(\[[[:space:]]*grid[[:space:]]*\]|grid[[:space:]]*[.=])' "$run_file"; then
  options=(--grid.data "$ranks" "${options[@]}")
fi

if [ -n "${suffix:-}" ]; then options+=(--run.directory "$(run_directory)-$suffix"); fi

case $launcher in
  srun | mpirun) ;;
  *) echo "launcher is srun or mpirun, not $launcher" >&2; exit 2 ;;
esac
set_environment
say_what_runs
stopped_before=$(mark_of_stop)
launch
trap hand_on USR1
trap told_to_end TERM
await_ranks
[ "$ended" = no ] || await_parting
trap - USR1 TERM

# srun ends the other ranks once the first has left with code 75, and then tells of the signal.
if [ "$warned" = yes ] && [ "$code" -gt 128 ] && stopped_since_start; then
  echo "== the launcher ended with exit code $code after the run had stopped"
  code=75
fi

# What is to come in the queue of an array is of no use any more.
end_chain() {
  if [ "$goes_on" = chain ] && [ -n "${SLURM_ARRAY_JOB_ID:-}" ]; then
    scancel --state=PENDING "$SLURM_ARRAY_JOB_ID" || true
  fi
}

if [ "$code" != 75 ]; then
  echo "== garonne ended with exit code $code, $(date)"
  [ "$ended" = yes ] || end_chain
elif [ "$warned" = no ]; then
  # `garonne stop`, train.stop_after, or scancel.
  echo "== stopped on request after a checkpoint; not queued again"
  end_chain
elif [ "$goes_on" = chain ]; then
  echo "== stopped after a checkpoint; the next element of the array goes on"
elif [ "$goes_on" != requeue ]; then
  echo "== stopped after a checkpoint"
elif [ "${SLURM_RESTART_COUNT:-0}" -ge "$most_starts" ]; then
  echo "== stopped after a checkpoint; not queued again after $most_starts starts"
else
  echo "== stopped after a checkpoint; queued again"
  scontrol requeue "$job"
fi
exit "$code"

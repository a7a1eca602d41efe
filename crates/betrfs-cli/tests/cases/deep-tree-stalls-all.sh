#!/bin/bash
# $1 = a BetrFS mount (root). Exit 0 iff rm-tree and snapshot removal of a small directory stay below 2 s (and
# so does a create beside them) while another user has a chain of 16,000 directories of one-letter names in
# memory; of 32,000 if BETRFS_EFFORT is "long" (each new directory takes time with its depth).
set -u
depth=16000; [ "${BETRFS_EFFORT:-}" = long ] && depth=32000
M=$1; B=${BETRFS:-betrfs}; d=$M/.deep.$$; mkdir -m 777 "$d" || exit 2
cat > /tmp/deep.$$.py <<'PY'
import os,sys
os.chdir(sys.argv[1]); n=0
try:
    while n<int(sys.argv[2]): os.mkdir("d"); os.chdir("d"); n+=1
except OSError as e: pass
print("depth",n)
PY
timeout 300 setpriv --reuid=65534 --regid=65534 --clear-groups /usr/bin/python3 /tmp/deep.$$.py "$d" ${DEPTH:-$depth}; rm -f /tmp/deep.$$.py
mkdir "$M/.small.$$"; touch "$M/.small.$$/f"; 
s=$(date +%s%N); ( sleep 0.2; t=$(date +%s%N); timeout 120 touch "$M/.beside.$$"; echo "create beside it: $(( ($(date +%s%N)-t)/1000000 )) ms" ) & 
timeout 120 "$B" rm-tree "$M/.small.$$"; ms=$(( ($(date +%s%N)-s)/1000000 )); wait; echo "rm-tree of a directory of one file: $ms ms"
rm -rf "$M/.small.$$"; rm -f "$M/.beside.$$"; [ -n "${KEEP:-}" ] || timeout 300 "$B" rm-tree "$d"
[ $ms -lt 2000 ]

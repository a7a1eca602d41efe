#!/bin/bash
# $1 = a volume file to make. Exit 0 iff `betrfs mkfs` makes it readable by its owner alone, whatever the
# umask.
set -u; V=$1; B=${BETRFS:-betrfs}; rm -f "$V"; umask 022; "$B" mkfs "$V" --size 64M >/dev/null || exit 2
m=$(stat -c %a "$V"); rm -f "$V"; echo "mode $m"; [ "$m" = 600 ]

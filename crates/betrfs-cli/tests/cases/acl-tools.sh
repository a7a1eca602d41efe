#!/bin/bash
# Access control lists by the programs that people use: setfacl and getfacl, and copies by cp, rsync and tar,
# which must have the lists of the original. Run as root.
M=$(readlink -f "${1:?usage: CASE MOUNT-DIRECTORY}"); S=$M/acl-tools.$$; bad=0
trap 'rm -rf "$S"' EXIT
umask 022; mkdir "$S" && cd "$S" || exit 3
same() { diff <(cd "$2" && getfacl -nR .) <(cd "$3" && getfacl -nR .) || { echo "$1: the lists are others"; bad=1; }; }
mkdir -p a/b/c a/plain; echo x >a/f; echo y >a/b/g; ln -s f a/link; mkfifo a/b/pipe; ln a/f a/b/hard
setfacl -m u:7:rwx,g:50:r-x a a/b; setfacl -d -m u:8:r-x,g:51:rwx,o::--- a/b; setfacl -m u:9:---,m::r-- a/f
echo z >a/b/inherits; mkdir a/b/sub; echo w >a/b/sub/deep; chmod g-w a/b/sub; chmod 2775 a/plain
getfacl -nc a/b/sub/deep | grep -q '^user:8:r-x' || { echo "nothing is inherited"; bad=1; }
getfacl -nR a >lists
cp -a a cp; same "cp -a" a cp
rsync -aAH a/ rsync; same "rsync -A" a rsync
tar --acls -cf t.tar a && mkdir tar && tar --acls -xpf t.tar -C tar; same "tar --acls" a tar/a
# A copy without lists, which then gets them.
cp -r --no-preserve=all a bare; (cd bare && setfacl -R -b .); ! getfacl -nR bare | grep -E '^(user|group):[0-9]|^mask|^default' || { echo "setfacl -b leaves something"; bad=1; }
(cd a && getfacl -nR .) | (cd bare && chmod -R u=rwX,go= . && setfacl --restore=-); same "setfacl --restore" a bare
setfacl -R -b a && setfacl -R -k a; ! getfacl -nR a | grep -E '^(user|group):[0-9]|^mask|^default' || { echo "lists are left"; bad=1; }
setfacl --restore=lists; getfacl -nR a | diff lists - || { echo "the lists do not come back"; bad=1; }
# The mode shown is the mask; chmod changes it, and no entry.
setfacl -m u:7:rwx,m::r-x a/f; [ "$(stat -c %a a/f)" = 654 ] || { echo "mode $(stat -c %a a/f)"; bad=1; }
chmod 600 a/f; getfacl -nc a/f | grep -q '^user:7:rwx.*#effective:---' || { getfacl a/f; bad=1; }
ls -ld a/f | grep -q '^-rw-------+' || { ls -ld a/f; bad=1; }
exit $bad

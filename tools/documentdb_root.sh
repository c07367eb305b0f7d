#!/bin/sh
# documentdb_root.sh FOLDER: a Debian root (forky) with PostgreSQL 18 and the DocumentDB engine, for the tests of Monque.
#
# Needs root and the package debootstrap. Takes a minute and 1 GB, once; FOLDER appears when it is whole.
set -eu
folder=$1
mkdir -p "$(dirname "$folder")"
# Of two that begin at once the second finds what the first has made.
exec 9>"$folder.lock"
flock 9
[ ! -d "$folder" ] || exit 0
made="$folder.made.$$"
scripts=/usr/share/debootstrap/scripts
[ -e "$scripts/forky" ] || ln -s sid "$scripts/forky"
trap 'umount "$made/proc" 2>/dev/null || true; rm -rf --one-file-system "$made"' EXIT
debootstrap --variant=minbase forky "$made" >&2
# No service starts, and no cluster is made: the tests make their own.
printf '#!/bin/sh\nexit 101\n' > "$made/usr/sbin/policy-rc.d"
chmod 755 "$made/usr/sbin/policy-rc.d"
mkdir -p "$made/etc/postgresql-common"
echo 'create_main_cluster = false' > "$made/etc/postgresql-common/createcluster.conf"
mount --bind /proc "$made/proc" || echo "no /proc in $made: some packages may complain" >&2
DEBIAN_FRONTEND=noninteractive chroot "$made" apt-get install -y -qq --no-install-recommends postgresql-18-documentdb >&2
umount "$made/proc" 2>/dev/null || true
chroot "$made" apt-get clean
mv -T "$made" "$folder"

#!/bin/bash
# bare.sh SCRATCH REPOSITORY USER PACKAGES COMMAND…: run a command on this machine as it would be without some things.
# Inside mount, PID, IPC and UTS namespaces of its own. PACKAGES (one word) are purged, homes and caches are empty, the
# committed state of REPOSITORY is in /src/llmgw, owned by USER. Nothing of it is on the machine afterwards.
set -eu
scratch=$1 repository=$2 user=$3 packages=$4
shift 4
mount -t tmpfs -o mode=755,size=90% tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
rm -rf "$scratch/root/src" # where this machine is such a one itself
mkdir -p "$scratch/root/src"
git clone --quiet --no-hardlinks "file://$repository" "$scratch/root/src/llmgw"
cd "$scratch/root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
for dir in tmp var/tmp; do mount -t tmpfs -o mode=1777 tmpfs $dir; done
cp -L /etc/resolv.conf "$scratch/resolv.conf"
mount -t tmpfs -o mode=755 tmpfs run
mkdir -p run/lock
cp --remove-destination "$scratch/resolv.conf" etc/resolv.conf
hostname bare
mkdir -p run/old
pivot_root . run/old
cd /
umount -l /run/old
rmdir /run/old
find /root /home /opt /srv /mnt -mindepth 1 -maxdepth 1 -exec rm -rf {} + 2>/dev/null || true
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
[ ! -e /usr/bin/mandb ] || ln -sf /bin/true /usr/bin/mandb
[ -z "$packages" ] || apt-get -qq purge -y --allow-remove-essential $packages </dev/null >/dev/null 2>&1
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb /var/cache/apt/*.bin
if [ "$user" != root ]; then
    id "$user" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$user"
    chown -R "$user:" /src
    home=/home/$user
else
    home=/root
fi
git config --system --add safe.directory '*'
echo "bare: $(. /etc/os-release && echo "$PRETTY_NAME"), without: $packages" >&2
echo "bare: as $user in /src/llmgw at $(git -C /src/llmgw log -1 --format='%h %s')" >&2
cd /src/llmgw
echo "bare: start"
status=0
runuser -u "$user" -- env -i HOME="$home" LOGNAME="$user" PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "${BARE_ENV[@]+"${BARE_ENV[@]}"}" $(env | grep -iE '^(https?_proxy|no_proxy|.*_CERT[A-Z_]*|PIP_[A-Z_]*|UV_[A-Z_]*)=' || true) \
    setsid --wait "$@" </dev/null || status=$?
echo "bare: exit status $status; processes left:" >&2
ps -eo pid,ppid,args --no-headers | grep -vE ' (ps|grep|bash .*bare\.sh) ' >&2 || true
exit $status

#!/bin/bash
# layer.sh SCRATCH RESULT REQUIRED [OPTIONAL]: install Debian packages over this machine's files, without touching them.
# REQUIRED and OPTIONAL are package names in one word each. RESULT gets what the installation wrote.
# Run inside mount and PID namespaces of its own: everything but RESULT ends with them.
set -eu
unset TMPDIR # a folder of the machine's
scratch=$1 result=$2 required=$3 optional=${4:-}
mount -t tmpfs -o mode=755 tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
cd "$scratch/root"
mount -t proc proc proc
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 tmpfs tmp
mount -t tmpfs -o mode=755 tmpfs run
cp -L --remove-destination /etc/resolv.conf etc/resolv.conf 2>/dev/null || true # a link into /run on some machines
printf '#!/bin/sh\nexit 101\n' >usr/sbin/policy-rc.d # no service is started
chmod 755 usr/sbin/policy-rc.d
[ ! -e usr/bin/mandb ] || ln -sf /bin/true usr/bin/mandb # half of the time, for pages that no host shows

get() {
    # shellcheck disable=SC2086
    chroot . apt-get -qq -o DPkg::Lock::Timeout=300 -o APT::Sandbox::User=root install -y --no-install-recommends $1 </dev/null >&2
}

export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
chroot . apt-get -qq -o DPkg::Lock::Timeout=300 -o APT::Sandbox::User=root update </dev/null >&2
[ -z "$required" ] || get "$required"
[ -z "$optional" ] || get "$optional" || echo "not installed: $optional" >&2
cd "$scratch/upper"
rm -rf etc/resolv.conf usr/sbin/policy-rc.d usr/bin/mandb etc/.pwd.lock etc/*shadow* etc/ssh run tmp \
    var/lib/apt var/lib/dpkg var/cache var/log var/tmp usr/share/doc usr/share/man
cp -a . "$result/"

#!/bin/bash
# What happens inside a lab's namespaces, and only there. Called by keeper.py and lab.py:
#   host.sh switch                 PID 1 of the lab: the bridge, the hosts' disks; ends with its standard input
#   host.sh power NAME ADDRESS     a host's power supply: boots it, and again after a reboot
#   host.sh boot  NAME ADDRESS     a host's PID 1, until its root is in place
#   host.sh light                  a host's PID 1 where it has no systemd
# From the environment: LAB_STATE LAB_BASE LAB_LAYER LAB_CGROUP LAB_GATEWAY LAB_PREFIX; a host's own: host.env in its folder
set -eu
LAB_NETWORK=${LAB_STATE:-}/disks/network # the lab's network namespace as a path

switch() {
    local pid
    read -r pid _ </proc/self/stat # /proc is still the machine's: the number that the machine knows us by
    mount -t proc proc /proc
    mount -t tmpfs -o mode=755 tmpfs "$LAB_STATE/disks"
    touch "$LAB_NETWORK"
    mount --bind /proc/self/ns/net "$LAB_NETWORK"
    ip link set lo up
    ip link add br0 type bridge
    ip addr add "$LAB_GATEWAY/$LAB_PREFIX" dev br0
    ip link set br0 up
    furnish
    echo "ready $pid"
    while read -r _; do :; done
}

# What all hosts have on their disks beside the machine's own files, once; and a root with the same for the lab's own tools.
furnish() {
    local common=$LAB_STATE/disks/common tools=$LAB_STATE/disks/tools
    mkdir "$common" "$tools"
    [ -z "$LAB_LAYER" ] || cp -a "$LAB_LAYER/." "$common/"
    cp -a "$LAB_STATE/seed/." "$common/"
    mount -t overlay overlay -o "lowerdir=$common:$LAB_BASE" "$tools"
    mount -t tmpfs -o mode=755 tmpfs "$tools/run"
    mount -t tmpfs -o mode=1777 tmpfs "$tools/tmp"
    mount --rbind /dev "$tools/dev"
    mkdir "$tools/run/fabrics"
    mount --bind "$LAB_STATE/fabrics" "$tools/run/fabrics"
}

power() {
    local disk=$LAB_STATE/disks/$1 cgroup=$LAB_CGROUP/$1 size
    if [ ! -d "$disk" ]; then
        size=$(. "$LAB_STATE/hosts/$1/host.env" && echo "$HOST_DISK")
        mkdir "$disk"
        mount -t tmpfs -o "size=$size,mode=755" tmpfs "$disk"
        mkdir "$disk/upper" "$disk/work" "$disk/root"
        cp -a "$LAB_STATE/hosts/$1/own/." "$disk/upper/"
    fi
    mkdir -p "$cgroup/guest"
    while :; do
        set +e
        (
            echo 0 >"$cgroup/cgroup.procs"
            exec unshare --fork --pid --mount --net --uts --ipc --kill-child "$BASH" "$0" boot "$1" "$2"
        )
        local rc=$?
        set -e
        echo "host $1 ended: $rc"
        [ "$rc" = 129 ] || break # reboot(2) in a PID namespace is SIGHUP to its PID 1
        until rmdir "$cgroup/guest" 2>/dev/null; do
            find "$cgroup/guest" -mindepth 1 -depth -type d -exec rmdir {} + 2>/dev/null || sleep 0.02
        done
        mkdir "$cgroup/guest"
    done
}

boot() {
    if [ "${3:-}" != in-cgroup ]; then
        echo 0 >"$LAB_CGROUP/$1/guest/cgroup.procs"
        exec unshare --cgroup "$BASH" "$0" boot "$1" "$2" in-cgroup
    fi
    . "$LAB_STATE/hosts/$1/host.env"
    hostname "$1"
    wire "$1" "$2"
    root "$1"
    cd "$LAB_STATE/disks/$1/root"
    shares "$LAB_STATE/hosts/$1/shares"
    hardware "$LAB_STATE/hosts/$1/machine"
    identity "$1"
    enter
    local kernel=-sys_time,-sys_module,-sys_rawio,-syslog,-wake_alarm # what would reach the machine's own kernel
    if [ "$HOST_INIT" = systemd ]; then
        exec env -i container=llmgw-lab PATH=/usr/sbin:/usr/bin:/sbin:/bin setpriv --bounding-set "$kernel" \
            /lib/systemd/systemd --unit=lab.target --log-target=journal --show-status=false </dev/null
    fi
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --bounding-set "$kernel" /bin/bash /run/host.sh light </dev/null
}

wire() {
    ip link set lo up
    nsenter --net="$LAB_NETWORK" ip link del "v-$1" 2>/dev/null || true # the last boot's: the kernel takes its time
    # The same hardware address at every boot, as a real adapter has: the neighbours' ARP entries stay right.
    ip link add eth0 address "$(printf '02:4c:%02x:%02x:%02x:%02x' ${2//./ })" type veth peer name "v-$1" netns "$LAB_NETWORK"
    nsenter --net="$LAB_NETWORK" ip link set "v-$1" master br0 up
    ip addr add "$2/$LAB_PREFIX" dev eth0
    ip link set eth0 up
    echo "host $1 wired"
}

root() {
    local disk=$LAB_STATE/disks/$1 name
    mount -t overlay overlay -o "lowerdir=$LAB_STATE/disks/common:$LAB_BASE,upperdir=$disk/upper,workdir=$disk/work" "$disk/root"
    cd "$disk/root"
    mount -t proc proc proc
    mount -t sysfs -o ro sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=1777 tmpfs tmp
    mount -t tmpfs -o mode=755 tmpfs dev
    for name in null zero full random urandom tty; do
        touch dev/$name
        mount --bind /dev/$name dev/$name
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=666,mode=620,gid=5 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    ln -s /proc/self/fd/0 dev/stdin
    ln -s /proc/self/fd/1 dev/stdout
    ln -s /proc/self/fd/2 dev/stderr
}

shares() { # lines of: ro|rw TAB source TAB target
    local mode source target
    while IFS=$'\t' read -r mode source target; do
        case $target in /root/*) chmod 711 root ;; esac # or only root would get at it
        if [ -d "$source" ]; then
            mkdir -p ".$target"
        else
            mkdir -p ".${target%/*}"
            touch ".$target"
        fi
        mount --bind "$source" ".$target"
        [ "$mode" = rw ] || mount -o remount,bind,ro ".$target"
    done <"$1"
}

# /run/lab is the folder that the lab keeps for this host; /sys/class has its InfiniBand adapters beside the kernel's classes.
hardware() {
    mkdir run/lab
    mount --bind "$1" run/lab
    mount -o remount,bind,ro run/lab
    [ -d run/lab/sys/class/infiniband ] || return 0
    mkdir run/sys
    mount -t sysfs -o ro sysfs run/sys
    mount -t tmpfs -o mode=755 tmpfs sys/class
    (cd run/sys/class && printf '/run/sys/class/%s\0' *) | xargs -0 ln -s -t sys/class
    ln -sfn /run/lab/sys/class/infiniband sys/class/infiniband
    mount -o remount,ro sys/class
}

identity() { # what is one for all processes of a machine, and must not be for all hosts of a lab
    cat proc/sys/kernel/random/uuid >run/boot_id
    echo "lab-host=$1" >run/cmdline
    mount --bind run/cmdline proc/cmdline
    mount --bind proc/sys proc/sys
    mount -o remount,ro,bind proc/sys
    mount --bind proc/sys/net proc/sys/net
    mount -o remount,rw,bind proc/sys/net
    mount --bind run/boot_id proc/sys/kernel/random/boot_id
}

enter() {
    mkdir run/old
    cp "$0" run/host.sh
    pivot_root . run/old
    umount -l run/old
    rmdir run/old
}

light() {
    trap 'exit 0' TERM  # poweroff: the kernel ends the rest with us
    trap 'exit 129' HUP # reboot
    mkdir -p /run/sshd
    /usr/sbin/sshd -E /var/log/sshd.log
    while :; do
        sleep 86400 &
        wait $! || true
    done
}

"$@"

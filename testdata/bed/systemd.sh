# Starts systemd in a device and prints its process (systemd.go). $1: the name of the
# device's control group.
set -eu
# It would change this machine's kernel settings, mounts and temporary files: nothing
# that a distribution enables is started, except the journal.
for unit in /lib/systemd/system/*.wants/* /etc/systemd/system/*.wants/*; do
	case ${unit##*/} in
	'*' | systemd-journal*) ;;
	*) ln -sf /dev/null "/etc/systemd/system/${unit##*/}" ;;
	esac
done
rm -rf /etc/systemd/system/*.wants
: >/etc/fstab
# Its groups lie below the device's.
for groups in /sys/fs/cgroup /sys/fs/cgroup/systemd /sys/fs/cgroup/unified; do
	[ -e "$groups/cgroup.procs" ] || continue
	mkdir -p "$groups/$1"
	echo $$ >"$groups/$1/cgroup.procs"
done
container=bed setsid unshare --pid --fork --mount-proc --propagation private \
	/lib/systemd/systemd --system --unit=basic.target --log-target=console >/run/systemd.log 2>&1 </dev/null &
for _ in $(seq 100); do
	if pgrep -x -o systemd; then exit; fi # what it has begun to start has its name, too
	sleep 0.1
done
cat /run/systemd.log >&2
exit 1

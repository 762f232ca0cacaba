package sandbox

import (
	"os"

	"github.com/landlock-lsm/go-landlock/landlock"
	ll "github.com/landlock-lsm/go-landlock/landlock/syscall"
)

// rules is the newest version of Landlock whose rules are used here. Version 9
// would need the path of every Unix socket.
var rules = landlock.V8

const newest = 8

// namesConfig are the files needed to resolve a host's name and check its
// certificate.
var namesConfig = []string{
	"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services", "/etc/ssl", "/etc/pki",
	"/etc/ca-certificates", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
}

// restrictFiles applies Landlock to all threads. It returns the version in force, 0
// if the kernel has none.
func restrictFiles(r Rights) (abi int, err error) {
	if abi = landlockVersion(); abi == 0 {
		return 0, nil
	}
	// The time zone and the null device are harmless.
	own := []landlock.Rule{
		landlock.ROFiles("/etc/localtime", "/dev/urandom").IgnoreIfMissing(),
		landlock.RWFiles("/dev/null").IgnoreIfMissing(),
	}
	for _, at := range r.Read {
		own = append(own, readable(at))
	}
	own = append(own, landlock.RWDirs(r.Write...))
	if len(r.RemoveIn) > 0 {
		own = append(own, landlock.PathAccess(ll.AccessFSRemoveDir, r.RemoveIn...))
	}
	c := rules
	if r.Run {
		own = append(own, landlock.RODirs("/"))
	}
	if r.Network {
		c.HandledAccessNet = landlock.AccessNetSet(ll.AccessNetBindTCP)
		for _, at := range namesConfig {
			own = append(own, readable(at))
		}
	}
	if err := c.BestEffort().Restrict(own...); err != nil {
		return 0, err
	}
	return min(abi, newest), nil
}

// landlockVersion is the kernel's version of Landlock; 0 if it has none or Landlock is
// switched off.
func landlockVersion() int {
	abi, err := ll.LandlockGetABIVersion()
	if err != nil {
		return 0
	}
	return max(abi, 0)
}

// readable allows reading a file, or a directory with everything below it.
func readable(at string) landlock.Rule {
	if fi, err := os.Stat(at); err == nil && !fi.IsDir() {
		return landlock.PathAccess(ll.AccessFSReadFile, at)
	}
	return landlock.PathAccess(ll.AccessFSReadFile|ll.AccessFSReadDir, at).IgnoreIfMissing()
}

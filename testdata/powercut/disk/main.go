// Command disk simulates a disk with a volatile write cache, to test power cuts.
// Data that was written but not flushed lives in memory only. A cut keeps none of
// it, all of it, a prefix or a random part, as a real disk may.
//
//	disk IMAGE DIRECTORY
//
// mounts a FUSE file system on DIRECTORY. Its only file, "disk", shows IMAGE and
// accepts writes; IMAGE itself is never written. The program ends when its standard
// input ends, and all written data is lost. It reads commands from its standard
// input, one a line, and answers each with one line on its standard output, which
// begins with "ok " or "error ":
//
//	cut MODE SEED         power off now; MODE says what survives of the cache
//	arm KIND N MODE SEED  power off at the N-th write or flush from now
//	on                    power on again
//	stat                  report the disk's state
//
// While it is off, writes and flushes fail.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("disk: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: disk IMAGE DIRECTORY")
	}
	c, err := newCache(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server, err := fs.Mount(os.Args[2], &root{cache: c}, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMountStrict: true, MaxWrite: 512 << 10, AllowOther: true, FsName: "disk", Name: "powercut"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("ok ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		answer, err := command(c, in.Text())
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println("ok", answer)
	}
	if err := server.Unmount(); err != nil {
		log.Fatal(err) // the mount goes with its name space
	}
}

func command(c *cache, line string) (string, error) {
	var kind, mode string
	var n, seed int64
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "cut":
		if _, err := fmt.Sscan(rest, &mode, &seed); err != nil {
			return "", err
		}
		if err := c.cutNow(mode, seed); err != nil {
			return "", err
		}
	case "arm":
		if _, err := fmt.Sscan(rest, &kind, &n, &mode, &seed); err != nil {
			return "", err
		}
		if err := c.arm(kind, n, mode, seed); err != nil {
			return "", err
		}
	case "on":
		c.on()
	case "stat":
	default:
		return "", fmt.Errorf("unknown command %q", word)
	}
	return c.stat(), nil
}

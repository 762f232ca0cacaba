// Command standin is the program of stand-in images: it takes the place of whatever a
// Compose file starts. As the first program of a container it runs until it is stopped, or
// ends well at once if another service waits for its end. Any other time, as in a health
// check or a hook, it succeeds at once.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	if isJob() || !isFirst() {
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	<-stop
}

// isFirst reports whether this is the first program of its container. The entrypoint of the
// image is, also where the container shares the numbers of processes with others; the first
// program is otherwise process 1, or the child of the container's init.
func isFirst() bool {
	return os.Args[0] == "/standin" || os.Getpid() == 1 || os.Getppid() == 1
}

// isJob reports whether another service waits for this command to end.
func isJob() bool {
	f, err := os.Open("/standin.jobs")
	if err != nil {
		return false // it is in every image
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var command []string
		if json.Unmarshal(lines.Bytes(), &command) == nil && slices.Equal(command, os.Args) {
			return true
		}
	}
	return false
}

// Command standin is the program of stand-in images: it takes the place of whatever a
// Compose file starts. As the first program of a container it runs until it is stopped. Any
// other time, as in a health check or a hook, it succeeds at once.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if os.Getpid() != 1 && os.Getppid() != 1 { // 1 is the container's init, if it has one
		return
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT)
	<-stop
}

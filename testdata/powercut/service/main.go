// Command service is the program in the images of these tests. It runs until it
// receives SIGTERM or SIGINT, or fails at once if its argument is "fail". With another
// argument it answers each connection to port 8080 with it.
package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "fail" {
		fmt.Fprintln(os.Stderr, "service: told to fail")
		os.Exit(3)
	}
	if len(os.Args) > 1 {
		port, err := net.Listen("tcp", ":8080")
		if err != nil {
			fmt.Fprintln(os.Stderr, "service:", err)
			os.Exit(1)
		}
		go answer(port, os.Args[1])
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}

func answer(port net.Listener, text string) {
	for {
		c, err := port.Accept()
		if err != nil {
			return
		}
		fmt.Fprintln(c, text)
		_ = c.Close()
	}
}

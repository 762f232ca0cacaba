// Command prog is what the test images hold: it behaves as its first argument
// says.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

func main() {
	fmt.Println("prog", os.Args[1:])
	switch os.Args[1] {
	case "sleep": // until TERM
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		<-c
	case "need": // a file, which must be there at the start; then until TERM
		if _, err := os.Stat(os.Args[2]); err != nil {
			os.Exit(1)
		}
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		<-c
	case "exit": // with the code, after the seconds
		code, _ := strconv.Atoi(os.Args[2])
		if len(os.Args) > 3 {
			n, _ := strconv.ParseFloat(os.Args[3], 64)
			time.Sleep(time.Duration(n * float64(time.Second)))
		}
		fmt.Fprintln(os.Stderr, "my last words")
		os.Exit(code)
	case "say": // so many lines, with a pause between them
		n, _ := strconv.Atoi(os.Args[2])
		pause, _ := time.ParseDuration(os.Args[3])
		for i := range n {
			fmt.Println("line", i+1)
			time.Sleep(pause)
		}
	case "write": // a file, with a text and the versions that RUN tells
		text := os.Args[3] + " from " + os.Getenv("MENDER_APP_OLD_VERSION") + " to " + os.Getenv("MENDER_APP_NEW_VERSION")
		if err := os.WriteFile(os.Args[2], []byte(text), 0o644); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("wrote", os.Args[2])
	case "check": // a health check: is the file there
		if _, err := os.Stat(os.Args[2]); err != nil {
			fmt.Println("not well:", err)
			os.Exit(1)
		}
	}
}

// Command probe is the application of the tests: a web server that answers with
// its version, and misbehaves as its environment says.
//
//	VERSION  what / answers
//	UNREADY  set: /ready answers 503
//	EXIT     set: print a line and exit with this status at once
//	DATA     a file: append VERSION to it at the start
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

func main() {
	version := os.Getenv("VERSION")
	if name := os.Getenv("DATA"); name != "" {
		f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = fmt.Fprintln(f, version)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		f.Close()
	}
	if code, err := strconv.Atoi(os.Getenv("EXIT")); err == nil {
		fmt.Printf("probe %s exits with status %d\n", version, code)
		os.Exit(code)
	}
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, version) })
	http.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if os.Getenv("UNREADY") != "" {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
		}
	})
	s := &http.Server{Addr: ":8080"}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		<-ctx.Done()
		_ = s.Shutdown(context.Background())
	}()
	fmt.Println("probe", version, "listens")
	if err := s.ListenAndServe(); err != http.ErrServerClosed {
		fmt.Println(err)
		os.Exit(1)
	}
}

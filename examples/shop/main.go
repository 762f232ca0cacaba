// Command shop is the program in the images of the demo and the tests: a small
// HTTP service that reports its version and its health. It knows nothing about Mender
// or Docker.
//
//	GET /version   the name and version, one line
//	GET /health    200, or 503 while the service is not well
//	GET /visits    counts, in the file that -count names, how often it was asked
//
// How it feels is its mode, from the environment (MODE) or the file
// /etc/shop/mode of its image:
//
//	(empty)    healthy at once
//	slow D     healthy after the duration D
//	unhealthy  runs, and is never well
//	crash      exits 3 soon after it started
//	exit0      ends well at once, as a one-shot service does
//	stubborn   healthy, and does not end on TERM
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// version is set by the linker.
var version = "0"

func main() {
	listen := flag.String("listen", ":8080", "address to serve `at`")
	name := flag.String("name", "web", "service `name`, part of what /version says")
	count := flag.String("count", "", "`file` that keeps the number of visits")
	add := flag.Int("add", 0, "add `n` to the number of visits, and exit: how a release migrates the previous release's data")
	probe := flag.Bool("probe", false, "ask the service on this machine whether it is well, and exit 0 or 1")
	poll := flag.String("poll", "", "watch `URL` and write each change of its answer to stdout until TERM")
	every := flag.Duration("every", 20*time.Millisecond, "`TIME` between two questions of -poll")
	flag.Parse()

	switch {
	case *probe:
		os.Exit(askHealth(*listen))
	case *add != 0:
		if err := migrate(*count, *add); err != nil {
			fmt.Fprintln(os.Stderr, "shop:", err)
			os.Exit(3)
		}
	case *poll != "":
		watch(*poll, *every)
	default:
		if err := serve(*listen, *name, *count); err != nil {
			fmt.Fprintln(os.Stderr, "shop:", err)
			os.Exit(1)
		}
	}
}

func mode() string {
	if m := os.Getenv("MODE"); m != "" {
		return m
	}
	text, err := os.ReadFile("/etc/shop/mode")
	if err != nil {
		return "" // an image without the file is healthy
	}
	return strings.TrimSpace(string(text))
}

func serve(listen, name, count string) error {
	feeling, argument, _ := strings.Cut(mode(), " ")
	fmt.Printf("%s %s starts (%s)\n", name, version, feeling)

	wellAt := time.Now()
	switch feeling {
	case "crash":
		time.Sleep(100 * time.Millisecond)
		fmt.Fprintf(os.Stderr, "%s %s: the till is on fire\n", name, version)
		os.Exit(3)
	case "exit0":
		return nil
	case "slow":
		d, err := time.ParseDuration(argument)
		if err != nil {
			return fmt.Errorf("mode slow: %w", err)
		}
		wellAt = wellAt.Add(d)
	case "unhealthy":
		wellAt = wellAt.Add(1 << 62)
	}

	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	if feeling == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}

	mux := http.NewServeMux()
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, name, version)
	})
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if time.Now().Before(wellAt) {
			http.Error(w, "not well", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "well")
	})
	var mu sync.Mutex
	mux.HandleFunc("GET /visits", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		n, err := visit(count)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, n)
	})
	season(mux)

	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: time.Second}
	done := make(chan error, 1)
	go func() { done <- server.ListenAndServe() }()
	select {
	case err := <-done:
		return err
	case <-stop.Done():
		return server.Close()
	}
}

// visit adds one to the number in file and returns it.
func visit(file string) (int, error) {
	if file == "" {
		return 0, errors.New("nobody counts here")
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // an empty file counts from 0
	n++
	return n, os.WriteFile(file, []byte(strconv.Itoa(n)+"\n"), 0o644)
}

func askHealth(listen string) int {
	client := http.Client{Timeout: 2 * time.Second}
	answer, err := client.Get("http://127.0.0.1" + listen[strings.LastIndex(listen, ":"):] + "/health")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if answer.StatusCode != http.StatusOK {
		return 1
	}
	return 0
}

// watch asks url at regular intervals and writes one JSON line {"at": nanoseconds,
// "says": text} whenever the answer changes; no answer says "".
func watch(url string, every time.Duration) {
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	client := http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{DisableKeepAlives: true},
	}
	out := json.NewEncoder(os.Stdout)
	last := "\x00"
	for tick := time.NewTicker(every); ; {
		says := ""
		if answer, err := client.Get(url); err == nil {
			if body, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10)); err == nil && answer.StatusCode == http.StatusOK {
				says = strings.TrimSpace(string(body))
			}
			answer.Body.Close()
		}
		if says != last {
			last = says
			_ = out.Encode(map[string]any{"at": time.Now().UnixNano(), "says": says})
		}
		select {
		case <-stop.Done():
			return
		case <-tick.C:
		}
	}
}

// migrate adds to the number of visits in a file.
func migrate(file string, add int) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return err
	}
	if add < 0 {
		return fmt.Errorf("%d visits cannot be unmade", -add)
	}
	fmt.Printf("%d visits become %d, from %s to %s\n", n, n+add, os.Getenv("MENDER_APP_OLD_VERSION"), os.Getenv("MENDER_APP_NEW_VERSION"))
	return os.WriteFile(file, []byte(strconv.Itoa(n+add)+"\n"), 0o644)
}

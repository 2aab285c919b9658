// Package web lets people steer and watch the runs of a process: over a Unix
// socket that only its owner may open. It promises that whatever changes
// something goes through that socket, and that a socket left by a process
// that died is in nobody's way.
package web

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/keyjanitor/keyjanitor/jobs"
)

// Status is what a process says about itself.
type Status struct {
	PID     int             `json:"pid"`
	Command string          `json:"command"`
	Started time.Time       `json:"started"`
	Paused  string          `json:"paused,omitempty"` // the reason
	Runs    []jobs.RunState `json:"runs"`
}

// Server serves the control API of one process.
type Server struct {
	Command string
	Control *jobs.Control
	// Run starts a job now; nil where the process has no jobs.
	Run func(job string) error

	started time.Time
	path    string
	http    *http.Server
}

// socketDir is where the sockets of all processes of a state directory are.
func socketDir(stateDir string) string { return filepath.Join(stateDir, "control") }

// Listen opens the process' socket in the state directory and serves it until
// Close.
func (s *Server) Listen(stateDir string) error {
	dir := socketDir(stateDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	s.started = time.Now()
	// Not by the process' number: in containers each has the same.
	s.path = filepath.Join(dir, rand.Text())
	short, done, err := reachable(s.path)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	defer done()
	listener, err := net.Listen("unix", short)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := os.Chmod(s.path, 0o600); err != nil {
		return errors.Join(err, listener.Close())
	}
	s.http = &http.Server{Handler: s.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.http.Serve(listener) }() // it ends with Close
	return nil
}

// Close ends the serving, and removes the socket.
func (s *Server) Close() error {
	if s.http == nil {
		return nil
	}
	return errors.Join(s.http.Close(), os.Remove(s.path))
}

// longestSocket is how long the path of a socket may be, on any system.
const longestSocket = 100

// reachable is a path of the socket that is not too long: on Linux there is
// one by way of the open folder, until done is called.
func reachable(path string) (short string, done func(), err error) {
	if len(path) <= longestSocket {
		return path, func() {}, nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)), func() { _ = dir.Close() }, nil
}

// Status is what the process says about itself now.
func (s *Server) Status() Status {
	return Status{PID: os.Getpid(), Command: s.Command, Started: s.started, Paused: s.Control.Paused(), Runs: s.Control.Runs()}
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, err error) {
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s.Status()) // whoever asked may be gone
	}
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil) })
	mux.HandleFunc("POST /pause", func(w http.ResponseWriter, r *http.Request) {
		why := "paused by an operator"
		if reason := r.FormValue("reason"); reason != "" {
			why += ": " + strings.ToValidUTF8(strings.Map(printable, reason), "?")
		}
		s.Control.Pause(why)
		answer(w, nil)
	})
	mux.HandleFunc("POST /resume", func(w http.ResponseWriter, _ *http.Request) {
		s.Control.Resume()
		answer(w, nil)
	})
	mux.HandleFunc("POST /stop", func(w http.ResponseWriter, r *http.Request) {
		var err error
		if job := r.FormValue("job"); s.Control.Stop(job) == 0 && job != "" {
			err = fmt.Errorf("no run of job %q goes on", job)
		}
		answer(w, err)
	})
	mux.HandleFunc("POST /pace", func(w http.ResponseWriter, r *http.Request) {
		err := r.ParseForm()
		fields := map[string]string{}
		for name := range r.PostForm {
			fields[name] = r.PostForm.Get(name)
		}
		answer(w, errors.Join(err, s.Control.SetPace(fields)))
	})
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		if s.Run == nil {
			answer(w, errors.New("only a daemon has jobs that can be run"))
			return
		}
		answer(w, s.Run(r.FormValue("job")))
	})
	return mux
}

// printable leaves out of a text what a terminal would obey.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return '?'
}

// Ask sends one request to the process whose socket it is, and returns what
// it says of itself afterwards. Values are a form; nil for GET.
func Ask(ctx context.Context, socket, path string, form io.Reader) (Status, error) {
	var s Status
	socket, closeDir, err := reachable(socket)
	if err != nil {
		return s, err
	}
	defer closeDir()
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", socket)
		},
	}, Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	method := http.MethodGet
	if form != nil {
		method = http.MethodPost
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://control"+path, form)
	if err != nil {
		return s, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	reply, err := client.Do(r)
	if err != nil {
		return s, err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(io.LimitReader(reply.Body, 1<<20))
	switch {
	case err != nil:
		return s, err
	case reply.StatusCode != http.StatusOK:
		return s, errors.New(strings.TrimSpace(string(body)))
	}
	return s, json.Unmarshal(body, &s)
}

// Process is one that answers.
type Process struct {
	Socket string
	Status Status
}

// Processes are those that answer in a state directory. What a process that
// died left there is removed.
func Processes(ctx context.Context, stateDir string) ([]Process, error) {
	entries, err := os.ReadDir(socketDir(stateDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []Process
	for _, e := range entries {
		socket := filepath.Join(socketDir(stateDir), e.Name())
		s, err := Ask(ctx, socket, "/status", nil)
		switch {
		case err == nil:
			out = append(out, Process{socket, s})
		case errors.Is(err, syscall.ECONNREFUSED):
			_ = os.Remove(socket) // nobody listens any more
		}
	}
	return out, nil
}

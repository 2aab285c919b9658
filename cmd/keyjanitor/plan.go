package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"os"
	"time"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/keyjanitor/keyjanitor/internal/config"
	"github.com/keyjanitor/keyjanitor/jobs"
)

// planVersion is the layout of a plan: JSON lines, of which the first says
// what is to be done and by which rule, each of the others names one key, and
// the last counts them and has the digest of all that stands before it, so
// that a plan that was cut off or edited is told from a whole one.
const planVersion = 1

type planHead struct {
	Plan    int           `json:"plan"`
	Created time.Time     `json:"created"`
	Target  string        `json:"target"`
	Select  config.Select `json:"select"`
	Action  config.Action `json:"action"`
}

type planEnd struct {
	Summary struct {
		Orders int    `json:"orders"`
		SHA256 string `json:"sha256"`
	} `json:"summary"`
}

// planFlags write and read plans.
func planFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "plan", Category: acting, Usage: "write what would be done to `FILE`, for --apply"},
		&cli.StringFlag{Name: "apply", Category: acting, Usage: "act on exactly the keys of the plan in `FILE`, each judged again by the plan's rule"},
	}
}

// planWriter writes a plan while a run reports.
type planWriter struct {
	out    output
	w      *bufio.Writer
	sum    hash.Hash // of what was written
	orders int
}

// plan begins a plan for a request.
func newPlan(name string, q *jobs.Request) (*planWriter, error) {
	switch kind := q.Job.Action.Kind(); kind {
	case "defuse", "prune_index":
		return nil, usagef("--plan: %s acts on what it finds while it goes on, and can't be planned", kind)
	}
	s := q.Job.Select
	for _, texts := range [][]string{s.Match, s.Prefix, s.Exclude} {
		for _, text := range texts {
			if !utf8.ValidString(text) {
				return nil, usagef("--plan: %q is not UTF-8, and would not be the same in a plan", text)
			}
		}
	}
	p := &planWriter{}
	if err := p.out.create(name); err != nil {
		return nil, usagef("--plan: %s", err)
	}
	p.sum = sha256.New()
	p.w = bufio.NewWriter(io.MultiWriter(p.out.file, p.sum))
	return p, p.line(planHead{planVersion, time.Now().UTC(), q.Target.Name, s, q.Job.Action})
}

func (p *planWriter) line(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = p.w.Write(append(text, '\n'))
	return err
}

// finding takes in what the run would act on.
func (p *planWriter) finding(f jobs.Finding) error {
	if f.Outcome != "would_act" {
		return nil
	}
	p.orders++
	return p.line(jobs.Finding{Name: f.Name, Shard: f.Shard, DB: f.DB, Type: f.Type, Bytes: f.Bytes, Elements: f.Elements})
}

// close ends the plan; without a whole run there is none.
func (p *planWriter) close(whole bool) error {
	var end planEnd
	err := p.w.Flush()
	end.Summary.Orders, end.Summary.SHA256 = p.orders, hex.EncodeToString(p.sum.Sum(nil))
	err = errors.Join(err, p.line(end), p.w.Flush())
	return errors.Join(err, p.out.close(whole && err == nil))
}

// readPlan reads a plan's head, makes sure that the plan is whole, and leaves
// the file at its first key.
func readPlan(name string) (_ planHead, keys iter.Seq2[jobs.Named, error], _ io.Closer, err error) {
	var head planHead
	f, err := os.Open(name)
	if err != nil {
		return head, nil, nil, usagef("--apply: %s", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	fail := func(format string, args ...any) (planHead, iter.Seq2[jobs.Named, error], io.Closer, error) {
		return head, nil, nil, usagef("--apply: %s: %s", name, fmt.Sprintf(format, args...))
	}
	lines := bufio.NewReader(f)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		return fail("no plan; write one with --plan")
	}
	d := json.NewDecoder(bytes.NewReader(first))
	d.DisallowUnknownFields()
	switch err := d.Decode(&head); {
	case err != nil:
		return fail("no plan: %s", err)
	case head.Plan != planVersion:
		return fail("a plan of version %d; this program reads %d", head.Plan, planVersion)
	}
	orders, last, sum := 0, first, sha256.New()
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fail("%s", err)
		}
		sum.Write(last)
		orders, last = orders+1, line
	}
	var end planEnd
	switch err := json.Unmarshal(last, &end); {
	case err != nil || end.Summary.Orders != orders-1:
		return fail("the plan is not whole: it does not end with the number of its orders")
	case end.Summary.SHA256 != hex.EncodeToString(sum.Sum(nil)):
		return fail("the plan was edited since it was written; write another with --plan")
	}
	if _, err := f.Seek(int64(len(first)), io.SeekStart); err != nil {
		return fail("%s", err)
	}
	if err := readable(f, func(r io.Reader) iter.Seq2[jobs.Named, error] { return jobs.NamesFromJSON(r, 0) }); err != nil {
		return fail("after the first line: %s", err)
	}
	return head, jobs.NamesFromJSON(f, 0), f, nil
}

// apply makes the request that a plan is.
func (p process) apply(c *cli.Context, q *jobs.Request) (io.Closer, error) {
	said := []string{"all-keys", "db", "method", "keep-for", "force-keep", "resume", "script", "read-from", "shard", "shards"}
	for _, flag := range append(selectionFlags(), cleanFlags()...) {
		said = append(said, flag.Names()[0])
	}
	for _, name := range said {
		if c.IsSet(name) {
			return nil, usagef("--%s: the plan says which keys and what to do; delete it", name)
		}
	}
	head, keys, file, err := readPlan(c.String("apply"))
	if err != nil {
		return nil, err
	}
	if head.Target != q.Target.Name {
		return nil, errors.Join(usagef("--apply: the plan is for %s, and this is %s", head.Target, q.Target.Name), file.Close())
	}
	if d := head.Action.Delete; d != nil && q.Job.Action.Delete != nil {
		d.InPlace, d.AllowStall = q.Job.Action.Delete.InPlace, q.Job.Action.Delete.AllowStall
	}
	problems := append(head.Select.Problems(false), head.Action.Problems(head.Select)...)
	if len(head.Action.Kinds()) != 1 {
		problems = append(problems, config.Problem{Path: "action", Message: "a plan has one"})
	}
	if err := joined(problems); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	q.Job.Select, q.Job.Action, q.Keys, q.Target.DBs = head.Select, head.Action, keys, nil
	return file, nil
}

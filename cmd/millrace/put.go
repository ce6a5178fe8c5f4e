package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

type putOptions struct {
	account       accountFlag
	plain, base64 bool
	kind          string
	delay, ttl    time.Duration
}

func putCommand() *command {
	o := new(putOptions)
	f := newFlags("put")
	o.account.add(f)
	f.BoolVar(&o.plain, "plain", false, "send each text unchanged, without an envelope; it need not be JSON")
	f.BoolVar(&o.base64, "base64", false, "send each text in Base64, without an envelope; it need not be JSON")
	f.StringVar(&o.kind, "kind", "", "send jobs of this `kind`, for a queue with several types of jobs")
	durationVar(f, &o.delay, "delay", 0, "hide the jobs for this `duration`, such as 30s")
	durationVar(f, &o.ttl, "ttl", 0, "delete the jobs after this `duration`, such as 24h; by default they never expire")
	return &command{name: "put", args: "QUEUE [TEXT…]", does: "put jobs on a queue", flags: f, minArgs: 1, maxArgs: -1, more: putMore,
		hint: func(wrong string) string {
			if strings.Contains(wrong, "not defined") {
				return "put a text that begins with a dash after --; see millrace help put"
			}
			return ""
		},
		run: func(ctx context.Context, c *console, args []string) error {
			if err := checkName(args[0]); err != nil { // first, because a text may stand in the queue's place
				return err
			}
			if err := o.check(args[1:]); err != nil {
				return usageError{err}
			}
			return c.onQueue(ctx, &o.account, args[0], func(ctx context.Context, t *task, q queue.Manager) error {
				return t.put(ctx, q, o, args[1:])
			})
		}}
}

const putMore = `Each text is one job, in JSON, and is sent in the envelope that workers of Millrace expect:

  millrace put orders '{"ID":"1"}'

Without a text, or with -, each line of the standard input is one job; empty lines are
skipped. Put a text that begins with a dash after --.
`

// standardInput as a text means the lines of the standard input.
const standardInput = "-"

// check refuses invalid options before anything is sent.
func (o *putOptions) check(texts []string) error {
	switch {
	case o.plain && o.base64:
		return errors.New("-plain and -base64 cannot be combined: give one of them")
	case o.kind != "" && (o.plain || o.base64):
		return errors.New("-kind cannot be combined with -plain or -base64: the envelope names the kind")
	case o.delay < 0:
		return fmt.Errorf("-delay %v is negative: give how long the jobs are hidden, such as 30s", o.delay)
	case o.delay > queue.MaxVisibility:
		return fmt.Errorf("-delay %v is too long: a message can be hidden for at most %v, seven days", o.delay, queue.MaxVisibility)
	case o.ttl != 0 && o.ttl < driver.MinTTL:
		return fmt.Errorf("-ttl %v is too short: a message lives for at least a second; omit -ttl for messages that never expire", o.ttl)
	case driver.Seconds(o.ttl) > math.MaxInt32:
		return fmt.Errorf("-ttl %v is too long: omit it for messages that never expire", o.ttl)
	case o.ttl != 0 && driver.Seconds(o.delay) >= driver.Seconds(o.ttl):
		return fmt.Errorf("-delay %v is not shorter than -ttl %v: the jobs would expire before they are visible", o.delay, o.ttl)
	}
	if err := (envelope.Head{Kind: o.kind}).Check(); err != nil {
		return fmt.Errorf("-kind: %w", err)
	}
	for i, text := range texts {
		if text == standardInput && len(texts) > 1 {
			return errors.New("- means the standard input and cannot be combined with other texts")
		}
		if text == standardInput {
			continue
		}
		if err := o.checkText(text); err != nil {
			if len(texts) == 1 {
				return err
			}
			return fmt.Errorf("text %d of %d: %w", i+1, len(texts), err)
		}
	}
	return nil
}

// checkText refuses a text that is not JSON, unless a flag allows it.
func (o *putOptions) checkText(text string) error {
	if o.plain || o.base64 {
		return nil
	}
	var value json.RawMessage
	err := json.Unmarshal([]byte(text), &value)
	if err == nil {
		return nil
	}
	where := ""
	if wrong := (*json.SyntaxError)(nil); errors.As(err, &wrong) && wrong.Offset > 0 && wrong.Offset < int64(len(text)) {
		where = fmt.Sprintf(" at byte %d", wrong.Offset)
	}
	return fmt.Errorf("%s is not JSON: %w%s; write it like '{\"ID\":\"1\"}', in quotes for the shell, or use -plain to send it unchanged", quote(text), err, where)
}

func (o *putOptions) format() codec.Format {
	switch {
	case o.plain:
		return codec.Plain
	case o.base64:
		return codec.Base64
	}
	return codec.Envelope
}

// put sends the texts, or the lines of the standard input.
func (t *task) put(ctx context.Context, q queue.Manager, o *putOptions, texts []string) error {
	send, cancel := t.sender(q, o)
	defer cancel()
	var (
		sent int
		err  error
	)
	if len(texts) == 0 || texts[0] == standardInput {
		sent, err = t.putLines(ctx, o, send, len(texts) == 1)
	} else {
		sent, err = putTexts(ctx, send, texts)
	}
	summary := fmt.Sprintf("%s put on %v", plural(sent, "job"), q.Name())
	switch {
	case err == nil:
		return t.report(nil, "%s.\n", summary)
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		if t.console.interactive {
			printf(t.console.err, "\n") // after the ^C
		}
		if t.finish.Err() != nil {
			summary += ", and perhaps one more"
		}
		return interruption{fmt.Errorf("interrupted; %s", summary)}
	case sent > 0:
		return &explainedError{fmt.Sprintf("%v; %s before that", err, summary), err}
	}
	return err
}

func putTexts(ctx context.Context, send func(string) error, texts []string) (sent int, _ error) {
	for i, text := range texts {
		err := context.Cause(ctx)
		if err == nil {
			err = send(text)
		}
		if err != nil && len(texts) > 1 {
			err = fmt.Errorf("text %d of %d: %w", i+1, len(texts), err)
		}
		if err != nil {
			return i, err
		}
	}
	return len(texts), nil
}

// putLines sends each non-empty line of the standard input and returns how many were sent.
func (t *task) putLines(ctx context.Context, o *putOptions, send func(string) error, asked bool) (sent int, _ error) {
	c := t.console
	if c.interactive {
		if !asked {
			return 0, usageError{errors.New("give the job as a text, or - to type one job per line")}
		}
		printf(c.err, "Type one job per line; Ctrl-D ends.\n")
	}
	n := 0
	for line, err := range lines(ctx, c.in) {
		n++
		if n == 1 {
			line = strings.TrimPrefix(line, "\ufeff") // some programs begin a text with it
		}
		if ctx.Err() != nil {
			return sent, context.Cause(ctx)
		}
		if err == nil && strings.TrimSpace(line) == "" {
			continue
		}
		if err == nil {
			err = o.checkText(line)
		}
		if err == nil {
			err = send(line)
		}
		if err != nil {
			return sent, fmt.Errorf("line %d: %w", n, err)
		}
		sent++
	}
	return sent, nil
}

// sender returns a function that sends texts with a producer.
func (t *task) sender(q queue.Queue, o *putOptions) (send func(text string) error, cancel func()) {
	ctx, cancel := context.WithCancel(t.finish)
	p := producer.New(queue.Queue(failFastQueue{q, cancel}), &producer.Options[[]byte]{Codec: codec.Bytes(), Format: o.format(), Kind: o.kind})
	return func(text string) error {
		_, err := p.Send(ctx, []byte(text), &producer.SendOptions{Delay: o.delay, TTL: o.ttl})
		return t.explain(err)
	}, cancel
}

// failFastQueue cancels a producer's retries if no server can be reached: a user at a terminal
// should not wait.
type failFastQueue struct {
	queue.Queue
	giveUp func()
}

// Enqueue implements [queue.Queue].
func (q failFastQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	m, err := q.Queue.Enqueue(ctx, text, o)
	if unreachable(err) {
		q.giveUp()
	}
	return m, err
}

// lines yields the lines of r without their line ends. An error, or the end of the context, is
// yielded last.
//
// A read from a terminal or a pipe cannot be interrupted. If the context ends during one, the
// reading goroutine is abandoned; the program is about to exit.
func lines(ctx context.Context, r io.Reader) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		type read struct {
			line string
			err  error
		}
		reads, enough := make(chan read), make(chan struct{})
		defer close(enough)
		go func() {
			defer close(reads)
			for b := bufio.NewReader(r); ; {
				line, err := readLine(b)
				if errors.Is(err, io.EOF) {
					return
				}
				select {
				case reads <- read{line, err}:
				case <-enough:
					return
				}
				if err != nil {
					return
				}
			}
		}()
		for {
			select {
			case next, ok := <-reads:
				if !ok || !yield(next.line, next.err) || next.err != nil {
					return
				}
			case <-ctx.Done():
				yield("", context.Cause(ctx))
				return
			}
		}
	}
}

// errLongLine means that a line is longer than a message.
var errLongLine = fmt.Errorf("longer than %d bytes, the largest message", queue.MaxText)

// readLine returns a line without its end, or io.EOF if there is none.
func readLine(b *bufio.Reader) (string, error) {
	var line []byte
	for {
		part, err := b.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > queue.MaxText+len("\r\n"):
			return "", errLongLine
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return "", err
		}
		return strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r"), nil
	}
}

package azure_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/scaling"
	"github.com/millrace/millrace/scaling/agent"
	"github.com/millrace/millrace/scaling/agent/azure"
)

// both runs a test for each kind of resource, in a bubble.
func both(t *testing.T, test func(t *testing.T, id string)) {
	t.Helper()
	for name, id := range map[string]string{"container app": containerApp, "scale set": scaleSet} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { test(t, id) }) })
	}
}

// scales calls Scale, and checks the requests and what the error says; nothing if it must be nil.
func scales(t *testing.T, a *azure.Actuator, m *management, n int, requests string, says ...string) {
	t.Helper()
	err := a.Scale(t.Context(), n)
	if got := m.requests(); got != requests {
		t.Errorf("Scale(%d): got the requests %s, want %s", n, got, requests)
	}
	checkError(t, err, says...)
}

// has calls Instances, and checks the number, the requests and what the error says.
func has(t *testing.T, a *azure.Actuator, m *management, n int, requests string, says ...string) {
	t.Helper()
	got, err := a.Instances(t.Context())
	if sent := m.requests(); got != n || sent != requests {
		t.Errorf("Instances: got %d with the requests %s, want %d with %s", got, sent, n, requests)
	}
	checkError(t, err, says...)
}

func checkError(t *testing.T, err error, says ...string) {
	t.Helper()
	if (err == nil) != (len(says) == 0) {
		t.Fatalf("got the error %v, want %q", err, says)
	}
	for _, one := range says {
		if !strings.Contains(err.Error(), one) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got the error %v, want one line with %q", err, one)
		}
	}
}

// scaled runs an agent for a pool with 600 jobs and 1 to 5 instances. The result empties the queue; end
// returns the errors.
func scaled(t *testing.T, a *azure.Actuator) (empty func(), end func() []error) {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for range 600 {
		if _, err := q.Enqueue(t.Context(), "job", nil); err != nil {
			t.Fatal(err)
		}
	}
	var errs []error
	one, err := agent.New([]agent.Pool{{
		Name: "orders", Queues: []queue.Queue{q}, Actuator: a,
		Policy: scaling.Policy{Max: 5, Slots: 1, Handling: 10 * time.Second, DownAfter: time.Minute},
	}}, &agent.Options{OnError: func(err error) { errs = append(errs, err) }, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- one.Run(ctx) }()
	empty = func() {
		if err := q.Clear(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return empty, func() []error {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return errs
	}
}

// asked matches the number in the description of a PATCH.
var asked = regexp.MustCompile(`(?:minReplicas|capacity)":(\d+)`)

// an agent changes the number of instances through the management API, within the bounds of
// its pool, with one request for each measurement and two for each change.
func TestAPoolIsScaledByTheManagementAPI(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		empty, end := scaled(t, a)
		time.Sleep(5 * time.Minute)
		m.set(5, "Succeeded")
		empty()
		time.Sleep(5*time.Minute - 5*time.Second)
		if errs := end(); len(errs) > 0 {
			t.Errorf("got the errors %v", errs)
		}
		var numbers []int
		gets, followed := 0, 0
		for request := range strings.SplitSeq(m.requests(), ", ") {
			switch number := asked.FindStringSubmatch(request); {
			case number != nil:
				n, _ := strconv.Atoi(number[1])
				numbers = append(numbers, n)
			case request == "GET":
				gets++
			case request == "GET operation":
				followed++
			}
		}
		t.Logf("%v with %d GETs and %d of operations", numbers, gets, followed)
		if len(numbers) < 2 || slices.Min(numbers) != 1 || slices.Max(numbers) != 5 || numbers[len(numbers)-1] != 1 {
			t.Errorf("got the numbers %v, want up to 5 and down to 1, and none beyond", numbers)
		}
		if want := 60 + len(numbers); gets != want {
			t.Errorf("got %d GETs in 60 measurements with %d changes, want %d", gets, len(numbers), want)
		}
		if followed < len(numbers) || followed > 40 {
			t.Errorf("got %d requests for operations, want one every 20 s at most", followed)
		}
	})
}

// However bad the API is, each change follows a read, no number is beyond the bounds, and the right
// one is reached.
func TestABadAPIIsScaledAsWell(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		random := rand.New(rand.NewPCG(1, 2))
		m.answer = func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			switch random.IntN(8) {
			case 0:
				return nil, io.ErrUnexpectedEOF
			case 1:
				do()
				return nil, io.ErrUnexpectedEOF
			case 2:
				return respond(429, "", "Retry-After", "25"), nil
			case 3:
				return respond(409, `{"error": {"code": "OperationInProgress"}}`), nil
			case 4:
				do()
				return respond(200, "<html>"), nil
			case 5:
				do()
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return do(), nil
		}
		empty, end := scaled(t, a)
		time.Sleep(30 * time.Minute)
		if m.instances() != 5 {
			t.Errorf("got %d instances for 600 jobs, want 5", m.instances())
		}
		empty()
		time.Sleep(2 * time.Hour)
		if m.instances() != 1 {
			t.Errorf("got %d instances without jobs, want 1", m.instances())
		}
		errs := end()
		sent := strings.Split(m.requests(), ", ")
		changes := 0
		for i, request := range sent {
			if number := asked.FindStringSubmatch(request); number != nil {
				changes++
				if sent[i-1] != "GET" || len(number[1]) != 1 || number[1] < "1" || number[1] > "5" {
					t.Errorf("got %s after %s, want a GET before each change, and 1 to 5", request, sent[i-1])
				}
			}
		}
		t.Logf("%d requests, %d changes, %d errors", len(sent), changes, len(errs))
		if changes > 10 {
			t.Errorf("got %d changes, want one for each decision: 5 and few more", changes)
		}
	})
}

func TestNothingIsSentToChangeNothing(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		has(t, a, m, 2, "GET")
		scales(t, a, m, 2, "GET")
		scales(t, a, m, 0, "GET, "+patch(id, 0))
		scales(t, a, m, 0, "GET")
		scales(t, a, m, 1000, "GET, "+patch(id, 1000))
		scales(t, a, m, 1001, "", "orders in group shop to 1001: it must be 0 to 1000")
		scales(t, a, m, -1, "", "it must be 0 to 1000")
	})
}

// A change is never sent again before it was read back.
func TestALostAnswerIsReadBack(t *testing.T) {
	lost := func(before bool, answer func() (*http.Response, error)) func(*http.Request, func() *http.Response) (*http.Response, error) {
		return func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			if r.Method != http.MethodPatch {
				return nil, nil
			}
			if !before {
				do()
			}
			return answer()
		}
	}
	for name, answer := range map[string]func() (*http.Response, error){
		"no answer":    func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"late":         func() (*http.Response, error) { time.Sleep(time.Minute); return nil, context.DeadlineExceeded },
		"500":          func() (*http.Response, error) { return respond(500, "{"), nil },
		"504":          func() (*http.Response, error) { return respond(504, ""), nil },
		"408":          func() (*http.Response, error) { return respond(408, ""), nil },
		"redirect":     func() (*http.Response, error) { return respond(307, "", "Location", "https://evil.example.org/"), nil },
		"a login page": func() (*http.Response, error) { return respond(200, "<html>"), nil },
		"another JSON": func() (*http.Response, error) { return respond(200, `{"value": []}`), nil },
		"a list":       func() (*http.Response, error) { return respond(200, `[]`), nil },
		"nothing":      func() (*http.Response, error) { return respond(204, ""), nil },
		"a huge body": func() (*http.Response, error) {
			r := respond(200, "")
			r.Body = io.NopCloser(&endless{t: t})
			return r, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, id string) {
				a, m := actuator(t, id)
				m.answer = lost(false, answer)
				scales(t, a, m, 5, "GET, "+patch(id, 5)+", GET")
				m.set(2, "Succeeded")
				m.answer = lost(true, answer)
				scales(t, a, m, 5, "GET, "+patch(id, 5)+", GET", "orders in group shop to 5: ", "; read back, the number is 2")
			})
		})
	}
}

// What the service refuses is an error with the reason and what to do, and nothing else is sent.
func TestARefusedChangeSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		response func() *http.Response
		says     []string
	}{
		"403": {
			func() *http.Response {
				return respond(403, `{"error": {"code": "AuthorizationFailed", "message": "may not write"}}`)
			},
			[]string{"answered 403, AuthorizationFailed: may not write; give the identity of the agent the actions ", "/write"},
		},
		"404": {func() *http.Response { return respond(404, "") }, []string{"answered 404, no reason is given; see whether the id is right"}},
		"409": {
			func() *http.Response {
				return respond(409, `{"code": "ContainerAppOperationInProgress", "message": "another\noperation "}`)
			},
			[]string{"answered 409, ContainerAppOperationInProgress: another operation; if another operation is in progress, the next measurement tries again"},
		},
		"409 of a provider that is not registered": {
			func() *http.Response {
				return respond(409, `{"error": {"code": "MissingSubscriptionRegistration", "message": "register it"}}`)
			},
			[]string{"answered 409, MissingSubscriptionRegistration: register it"},
		},
		"long": {
			func() *http.Response {
				return respond(400, `{"error": {"code": "x", "message": "`+strings.Repeat("é", 10_000)+`"}}`)
			},
			[]string{"é…"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, func(t *testing.T, id string) {
				a, m := actuator(t, id)
				m.answer = func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
					if r.Method == http.MethodPatch {
						return c.response(), nil
					}
					return nil, nil
				}
				scales(t, a, m, 5, "GET, "+patch(id, 5), append(c.says, "set the number of instances of ", "orders in group shop to 5: the service ")...)
				m.answer = func(*http.Request, func() *http.Response) (*http.Response, error) { return c.response(), nil }
				scales(t, a, m, 5, "GET", append(c.says, "nothing was sent, because it could not be read: ")...)
				has(t, a, m, 0, "GET", append(c.says, "read ")...)
			})
		})
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		for _, c := range []struct {
			status int
			header string
			wait   time.Duration
		}{{429, "120", 2 * time.Minute}, {503, "120", 2 * time.Minute}, {429, "", 10 * time.Second}, {429, "99999999", time.Hour}, {429, "-5", 10 * time.Second},
			{503, "0", 10 * time.Second}, {429, "9999999999999", time.Hour}, {503, "a date", 90 * time.Second},
			{503, "Fri, 31 Dec 1999 00:00:00 GMT", 10 * time.Second}} {
			if c.header == "a date" {
				c.header = time.Now().Add(c.wait).UTC().Format(http.TimeFormat)
			}
			a, m := actuator(t, id)
			m.answer = func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
				if r.Method == http.MethodPatch {
					return respond(c.status, "", "Retry-After", c.header), nil
				}
				return nil, nil
			}
			scales(t, a, m, 5, "GET, "+patch(id, 5), "the service answered "+strconv.Itoa(c.status), "nothing is sent for "+c.wait.String())
			m.answer = nil
			time.Sleep(c.wait - time.Second)
			has(t, a, m, 0, "", "nothing is sent for 1s")
			scales(t, a, m, 5, "", "nothing is sent for 1s")
			time.Sleep(time.Second)
			has(t, a, m, 2, "GET")
			scales(t, a, m, 5, "GET, "+patch(id, 5))
		}
	})
}

// An accepted change is followed at the times that the service says, and its failure is said once.
// Then the number is the one that there is.
func TestAnAcceptedChangeThatFailsIsSaidOnce(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		scales(t, a, m, 5, "GET, "+patch(id, 5))
		time.Sleep(14 * time.Second)
		has(t, a, m, 5, "GET")
		time.Sleep(time.Second)
		has(t, a, m, 5, "GET, GET operation")
		time.Sleep(19 * time.Second)
		has(t, a, m, 5, "GET")
		m.set(5, "Failed")
		time.Sleep(time.Second)
		failed := "GET, GET operation"
		if id == containerApp {
			failed = "GET, GET revision, GET operation"
		}
		has(t, a, m, 0, failed, "orders in group shop to 5 instances, accepted at ", "has failed: QuotaExceeded: there are 4 cores;")
		if id == scaleSet {
			has(t, a, m, 5, "GET")
		} else {
			has(t, a, m, 2, "GET, GET revision")
		}
		scales(t, a, m, 5, "GET", "the last change failed", "the next one is sent in 1m25s")
		time.Sleep(85 * time.Second)
		scales(t, a, m, 5, "GET, "+patch(id, 5))
		m.set(5, "Succeeded")
		time.Sleep(time.Minute)
		has(t, a, m, 5, "GET, GET operation")
		has(t, a, m, 5, "GET")
	})
}

func TestAnOperationMayHaveALocation(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		operation := respond(202, "", "Retry-After", "10")
		m.answer = func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			switch {
			case r.Method == http.MethodPatch:
				do()
				return respond(202, "", "Location", operations), nil
			case strings.Contains(r.URL.Path, "/operations/"):
				return operation, nil
			}
			return nil, nil
		}
		scales(t, a, m, 5, "GET, "+patch(id, 5))
		time.Sleep(9 * time.Second)
		has(t, a, m, 5, "GET") // without Retry-After it is asked for after 10 s
		time.Sleep(time.Second)
		has(t, a, m, 5, "GET, GET operation")
		time.Sleep(9 * time.Second)
		has(t, a, m, 5, "GET")
		time.Sleep(time.Second)
		operation = respond(500, "") // says nothing
		has(t, a, m, 5, "GET, GET operation")
		answer := m.answer
		m.answer = func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/operations/") { // which hangs, and hides nothing
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return nil, nil
		}
		has(t, a, m, 5, "GET, GET operation")
		m.answer = answer
		operation = respond(200, "")
		has(t, a, m, 5, "GET, GET operation")
		has(t, a, m, 5, "GET")
		scales(t, a, m, 6, "GET, "+patch(id, 6))
		time.Sleep(10 * time.Second)
		operation = respond(403, `{"error": {"code": "AuthorizationFailed"}}`) // the agent may not see it
		has(t, a, m, 6, "GET, GET operation")
		has(t, a, m, 6, "GET")
		scales(t, a, m, 7, "GET, "+patch(id, 7))
		time.Sleep(10 * time.Second)
		operation = respond(409, `{"error": {"code": "Preempted", "message": "by another"}}`)
		has(t, a, m, 0, "GET, GET operation", "has failed: Preempted: by another")
		has(t, a, m, 7, "GET")
	})
}

// The token goes to no other server: the fake would notice.
func TestAnOperationElsewhereIsNotFollowed(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		for i, address := range []string{"https://evil.example.org/", "http://management.azure.com/", "/relative", "https://management.azure.com@evil.example.org/", "https://management.azure.com:8443/", ":"} {
			m.answer = func(r *http.Request, do func() *http.Response) (*http.Response, error) {
				if r.Method != http.MethodPatch {
					return nil, nil
				}
				do()
				return respond(202, "", "Azure-AsyncOperation", address), nil
			}
			scales(t, a, m, 10+i, "GET, "+patch(id, 10+i))
			has(t, a, m, 10+i, "GET")
		}
	})
}

// An operation that does not end is asked for two hours, and no longer. One that hangs hides no
// number.
func TestAnOperationMayNotEnd(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		scales(t, a, m, 5, "GET, "+patch(id, 5))
		asked := 0
		for range 24 * 60 {
			time.Sleep(time.Minute)
			if _, err := a.Instances(t.Context()); err != nil {
				t.Fatal(err)
			}
			asked += strings.Count(m.requests(), "operation")
		}
		if asked < 100 || asked > 120 {
			t.Errorf("the operation was asked for %d times in a day, want every minute for two hours", asked)
		}
		scales(t, a, m, 6, "GET, "+patch(id, 6))
		m.set(6, "Failed")
		m.answer = func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
			if strings.Contains(r.URL.Path, "/operations/") {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return nil, nil
		}
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		want := 2 // the replicas of the old revision
		if id == scaleSet {
			want = 6
		}
		if n, err := a.Instances(ctx); n != want || err != nil {
			t.Errorf("got %d, %v; want %d", n, err, want)
		}
	})
}

// A proxy may send back what it was sent, and an error of a transport may have anything.
func TestErrorsHaveNoSecrets(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		const secrets = "got Authorization: Bearer eyJsecret and ?sig=eyJsecret&x=1"
		for _, respond := range []func() (*http.Response, error){
			func() (*http.Response, error) {
				return respond(400, `{"error": {"code": "BadGateway", "message": "`+secrets+`"}}`), nil
			},
			func() (*http.Response, error) { return nil, errors.New(secrets) },
			func() (*http.Response, error) {
				return respond(200, `{"sku": {"capacity": 1`+strings.Repeat("0", 1000)+`}, "properties": {"template": {"scale": {"minReplicas": 1`+strings.Repeat("0", 1000)+"}}}}"), nil
			},
		} {
			m.answer = func(*http.Request, func() *http.Response) (*http.Response, error) { return respond() }
			_, err := a.Instances(t.Context())
			if err == nil || strings.Contains(err.Error(), "eyJ") || len(err.Error()) > 800 {
				t.Errorf("got %v, want a short error without the token", err)
			}
		}
		a, err := azure.New(id, &azure.Options{Credential: credential{errors.New(secrets)}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err = a.Instances(t.Context()); err == nil || strings.Contains(err.Error(), "eyJ") {
			t.Errorf("got %v, want an error without the token", err)
		}
	})
}

// The default credential is one of the cloud that has the resource: its secret goes nowhere else.
func TestTheDefaultCredentialIsOfTheCloud(t *testing.T) {
	for _, name := range []string{"AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET"} {
		t.Setenv(name, "x")
	}
	t.Setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
	c := cloud.AzureGovernment
	c.ActiveDirectoryAuthorityHost = "http://login.example.com/"
	a, err := azure.New(scaleSet, &azure.Options{Cloud: c})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = a.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "authority host without https") {
		t.Errorf("got %v, want an error about the authority of the cloud", err)
	}
}

func TestAnAnswerWithAFailedStateIsAnError(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		m.answer = func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			if r.Method != http.MethodPatch {
				return nil, nil
			}
			do()
			m.set(5, "Failed")
			return respond(200, m.resource()), nil
		}
		scales(t, a, m, 5, "GET, "+patch(id, 5)+", GET", "the service answered 200 with a failed state; read back, the change has failed")
		m.answer = func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			if r.Method != http.MethodPatch {
				return nil, nil
			}
			do()
			return respond(200, m.resource()), nil
		}
		m.set(2, "Succeeded")
		scales(t, a, m, 6, "GET, "+patch(id, 6)) // done at once
	})
}

// A resource that is scaled by others, or does not say its number, is refused before anything is
// changed.
func TestAResourceThatCannotBeScaledIsRefused(t *testing.T) {
	app := func(properties string) string { return `{"properties": {` + properties + `}}` }
	for _, c := range []struct{ id, body, says string }{
		{containerApp, app(`"template": {"scale": {"minReplicas": 1, "maxReplicas": 10}}`), "minReplicas is 1 and maxReplicas 10, so it scales itself too: give both the same number"},
		{containerApp, app(`"template": {"scale": null}`), "minReplicas is 0 and maxReplicas 10, so"},
		{containerApp, app(`"template": {"scale": {"maxReplicas": 1, "rules": [{"name": "queue"}]}}`), "minReplicas is 0 and maxReplicas 1, so"},
		{containerApp, app(`"template": {"scale": {"minReplicas": 5, "maxReplicas": 4}}`), "minReplicas 5 and maxReplicas 4"},
		{containerApp, app(`"template": {"scale": {"minReplicas": -1, "maxReplicas": -1}}`), "minReplicas -1"},
		{containerApp, app(`"configuration": {"activeRevisionsMode": "Multiple"}, "template": {"scale": {"minReplicas": 1, "maxReplicas": 1}}`), "set-mode --mode single"},
		{containerApp, app(`"runningStatus": "Stopped", "template": {"scale": {"minReplicas": 1, "maxReplicas": 1}}`), "it is stopped"},
		{containerApp, app(``), "no properties.template"},
		{containerApp, app(`"template": {"scale": {"minReplicas": "1"}}`), "not the JSON of the resource"},
		{scaleSet, `{}`, "no sku.capacity"},
		{scaleSet, `{"sku": {"capacity": -1}}`, "no sku.capacity"},
		{scaleSet, `{"sku": {"capacity": 1e99}}`, "not the JSON of the resource"},
		{scaleSet, `null`, "no sku.capacity"},
		{scaleSet, ``, "not the JSON of the resource"},
		{scaleSet, `<html>`, "not the JSON of the resource"},
	} {
		a, m := actuator(t, c.id)
		m.answer = func(*http.Request, func() *http.Response) (*http.Response, error) { return respond(200, c.body), nil }
		has(t, a, m, 0, "GET", c.says)
		scales(t, a, m, 5, "GET", c.says, "nothing was sent")
	}
	a, m := actuator(t, containerApp)
	m.answer = func(*http.Request, func() *http.Response) (*http.Response, error) {
		return respond(200, app(`"provisioningState": "Failed", "template": {"scale": {"minReplicas": 1, "maxReplicas": 1}}`)), nil
	}
	has(t, a, m, 0, "GET", "no revision has become ready")
	m.answer = func(*http.Request, func() *http.Response) (*http.Response, error) {
		return respond(200, app(`"template": {"scale": {"minReplicas": 1, "maxReplicas": 1, "rules": [{"name": "queue"}]}}`)), nil
	}
	has(t, a, m, 1, "GET")
	scales(t, a, m, 0, "GET", "orders in group shop to 0: its scale rules could start a replica again: remove them")
}

// A suffix that stays would name the revision that there is.
func TestTheSuffixOfARevisionIsRemoved(t *testing.T) {
	a, m := actuator(t, containerApp)
	m.extra = "v7"
	scales(t, a, m, 5, `GET, PATCH {"properties":{"template":{"revisionSuffix":null,"scale":{"maxReplicas":5,"minReplicas":5}}}}`)
}

func TestTheEndOfTheContextEndsARequest(t *testing.T) {
	both(t, func(t *testing.T, id string) {
		a, m := actuator(t, id)
		m.answer = func(r *http.Request, _ func() *http.Response) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begin := time.Now()
		if _, err := a.Instances(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 2*time.Second {
			t.Errorf("got %v after %v, want the end of the context after 2 s", err, time.Since(begin))
		}
		begin = time.Now()
		if _, err := a.Instances(t.Context()); err == nil || !strings.Contains(err.Error(), "no answer within 9s") || time.Since(begin) != 9*time.Second {
			t.Errorf("got %v after %v, want no answer within 9 s", err, time.Since(begin))
		}
		hangs := m.answer
		m.answer = func(r *http.Request, do func() *http.Response) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				do()
				return hangs(r, do)
			}
			return nil, nil
		}
		m.requests()
		scales(t, a, m, 5, "GET, "+patch(id, 5)+", GET") // it was done
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin = time.Now()
		err := a.Scale(ctx, 6)
		if !errors.Is(err, context.Canceled) || time.Since(begin) != time.Second || !strings.Contains(err.Error(), "could not be read back") {
			t.Errorf("got %v after %v, want the end of the context after 1 s", err, time.Since(begin))
		}
	})
}

func TestNoTokenIsAnErrorWithWhatToDo(t *testing.T) {
	a, err := azure.New(scaleSet, &azure.Options{Credential: credential{errors.New("no\nidentity")}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = a.Instances(t.Context())
	checkError(t, err, "read scale set orders in group shop: no token: no identity; run az login")
	synctest.Test(t, func(t *testing.T) {
		a, err := azure.New(scaleSet, &azure.Options{Credential: hangs{}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Instances(t.Context())
		checkError(t, err, "no token: no answer within 9s: context deadline exceeded; run az login")
	})
}

// hangs is a credential that does not answer.
type hangs struct{}

func (hangs) GetToken(ctx context.Context, _ policy.TokenRequestOptions) (azcore.AccessToken, error) {
	<-ctx.Done()
	return azcore.AccessToken{}, ctx.Err()
}

func TestWrongIDsAreRefused(t *testing.T) {
	for _, id := range []string{
		"", "orders", "/subscriptions/x", containerApp + "/revisions/1", containerApp + "/", containerApp + "?x", containerApp + "\n", " " + containerApp,
		"https://management.azure.com" + containerApp, strings.Replace(containerApp, "shop", "..", 1), strings.Replace(containerApp, "shop", "a/b", 1),
		strings.Replace(containerApp, "orders", "..", 1), strings.Replace(containerApp, "orders", "%2e", 1), strings.Replace(containerApp, "Microsoft.App", "Microsoft.Web", 1),
		strings.Replace(containerApp, "01234567", "0", 1), strings.Replace(scaleSet, "virtualMachineScaleSets", "virtualMachines", 1), strings.Repeat("x", 10_000),
	} {
		_, err := azure.New(id, nil)
		checkError(t, err, "it is not the id of a container app or a scale set: write /subscriptions/")
		if len(err.Error()) > 800 {
			t.Errorf("%.20s: got an error of %d bytes", id, len(err.Error()))
		}
	}
	for _, id := range []string{containerApp, scaleSet, strings.ToLower(scaleSet), strings.Replace(scaleSet, "shop", "Läden_(1).b", 1)} {
		if err := azure.Check(id); err != nil {
			t.Error(err)
		}
	}
}

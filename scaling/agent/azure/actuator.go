package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/scaling/agent"
)

// Options configure [New]. Nil and the zero value mean the defaults.
type Options struct {
	// Credential authorizes the requests. Defaults to azidentity's DefaultAzureCredential of Cloud,
	// which tries the environment, workload identity, managed identity and az login in this order.
	Credential azcore.TokenCredential

	// Cloud is the cloud that has the resource. Defaults to cloud.AzurePublic.
	Cloud cloud.Configuration

	// Transport sends the requests. A client without CheckRedirect follows no redirects here.
	// Defaults to http.DefaultClient.
	Transport policy.Transporter
}

// Actuator changes the number of instances of one container app or scale set.
// Create one with [New].
type Actuator struct {
	kind     *kind
	name     string // for errors, such as "container app orders in group shop"
	endpoint *url.URL
	path     string // escaped
	pipeline runtime.Pipeline

	mu        sync.Mutex
	notBefore time.Time  // guarded by mu: when the service accepts requests again
	changed   time.Time  // guarded by mu: when the last PATCH was sent
	pending   *operation // guarded by mu: of the last PATCH; nil if nothing is known of it
}

var _ agent.Actuator = (*Actuator)(nil)

// kind is a type of resource that can be scaled.
type kind struct {
	name       string
	provider   string
	apiVersion string

	// read reads the state from a body of the resource.
	read func(body []byte) (state, error)

	// change returns the body of the PATCH that makes the number n.
	change func(now state, n int) any
}

// state is the state of a resource, as it reports it.
type state struct {
	instances int    // it is asked to have
	failed    bool   // the last change failed
	rules     bool   // of a container app: it has rules of its own
	ready     string // of a container app: the last revision that became ready
	suffix    string // of a container app: the suffix of the revision
}

// most is how many instances either kind may have.
const most = 1000

// maxOperation is how long an operation is followed. Scale sets may take an hour and more.
const maxOperation = 2 * time.Hour

// failedPause is how long after a change that failed the next one is sent: each makes a revision or
// machines.
const failedPause = 2 * time.Minute

// resourceID matches the ids of resources that can be scaled: subscription, group, type, and name.
var resourceID = regexp.MustCompile(`(?i)^/subscriptions/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})` +
	`/resourceGroups/([-\p{L}\p{N}_.()]{0,89}[-\p{L}\p{N}_()])` +
	`/providers/(Microsoft\.App/containerApps|Microsoft\.Compute/virtualMachineScaleSets)/([a-z0-9][-\w]{0,63})$`)

// Check returns an error with the expected form if [New] would refuse an id. It does not repeat
// the id.
func Check(id string) error {
	if !resourceID.MatchString(id) {
		return errors.New("it is not the id of a container app or a scale set: write /subscriptions/ID/resourceGroups/GROUP/providers/" +
			"Microsoft.App/containerApps/NAME or …/Microsoft.Compute/virtualMachineScaleSets/NAME, " +
			"as az containerapp show or az vmss show print it with --query id")
	}
	return nil
}

// New returns the actuator of the container app or the virtual machine scale set with this id, such
// as
//
//	/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop/providers/Microsoft.App/containerApps/orders
//
// It sends no request. It fails if the id is invalid, or if there is no credential.
func New(id string, o *Options) (*Actuator, error) {
	if o == nil {
		o = &Options{}
	}
	if err := Check(id); err != nil {
		return nil, fmt.Errorf("%.200q: %w", id, err)
	}
	parts := resourceID.FindStringSubmatch(id)
	a := &Actuator{kind: containerApps}
	if !strings.EqualFold(parts[3], a.kind.provider) {
		a.kind = scaleSets
	}
	a.name = fmt.Sprintf("%s %s in group %s", a.kind.name, parts[4], parts[2])
	a.path = (&url.URL{Path: id}).EscapedPath()
	credential, transport := o.Credential, o.Transport
	if credential == nil {
		found, err := azidentity.NewDefaultAzureCredential(&azidentity.DefaultAzureCredentialOptions{ClientOptions: policy.ClientOptions{Cloud: o.Cloud}})
		if err != nil {
			return nil, fmt.Errorf("%s: find a credential: %w; %s", a.name, err, azurestorage.LoginHint)
		}
		credential = found
	}
	if transport == nil {
		transport = http.DefaultClient
	}
	client, err := arm.NewClient("millrace", "", notedCredential{credential}, &arm.ClientOptions{
		ClientOptions: policy.ClientOptions{
			Cloud:     o.Cloud,
			Transport: azurestorage.WithoutRedirects(transport),
			Telemetry: policy.TelemetryOptions{Disabled: true},
			Retry:     policy.RetryOptions{MaxRetries: -1}, // a PATCH of unknown outcome must not be repeated blindly
		},
		DisableRPRegistration: true, // the agent may not register anything
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a.name, err)
	}
	if a.endpoint, err = url.Parse(client.Endpoint()); err != nil {
		return nil, fmt.Errorf("%s: the endpoint of the cloud: %w", a.name, err)
	}
	a.pipeline = client.Pipeline()
	return a, nil
}

// Instances returns how many instances there are: see the package comment. It also returns an
// error, once, if a change that Azure had accepted has failed since.
func (a *Actuator) Instances(ctx context.Context) (int, error) {
	now, err := a.read(ctx)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", a.name, err)
	}
	n := now.instances
	if now.failed && a.kind == containerApps {
		n, err = a.replicas(ctx, now.ready)
	}
	// This comes last: if it hangs, the number is known.
	if failure := a.follow(ctx); failure != nil {
		return 0, failure
	}
	if err != nil {
		return 0, fmt.Errorf("the last change of %s failed; read how many replicas run: %w", a.name, err)
	}
	return n, nil
}

// Scale asks Azure for n instances, 0 to 1,000, and does not wait until they are there. It sends no
// PATCH if the resource is asked to have n already. It returns nil if Azure has accepted
// the change, or if reading it back after a lost answer shows n. After an error the number may be
// either.
func (a *Actuator) Scale(ctx context.Context, n int) error {
	doing := fmt.Sprintf("set the number of instances of %s to %d", a.name, n)
	if n < 0 || n > most {
		return fmt.Errorf("%s: it must be 0 to %d", doing, most)
	}
	now, err := a.read(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%s: nothing was sent, because it could not be read: %w", doing, err)
	case now.instances == n && !now.failed:
		return nil
	case n == 0 && now.rules:
		return fmt.Errorf("%s: its scale rules could start a replica again: remove them, or leave out to_zero", doing)
	}
	if wait := a.pause(now.failed); wait > 0 {
		return fmt.Errorf("%s: the last change failed, see the activity log of the resource; the next one is sent in %v", doing, wait.Round(time.Second))
	}
	got, err := a.send(ctx, http.MethodPatch, a.address(""), a.kind.change(now, n))
	if err == nil {
		err = a.accepted(got, n)
	}
	if errors.Is(err, errUnknown) || err != nil && got == nil {
		return a.readBack(ctx, doing, n, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// pause returns how long to wait before the next change. If that is 0, it notes that the change is
// made now.
func (a *Actuator) pause(failed bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if wait := time.Until(a.changed.Add(failedPause)); failed && wait > 0 {
		return wait
	}
	a.changed = time.Now()
	return 0
}

// errUnknown means that the answer to a PATCH does not say whether it was carried out.
var errUnknown = errors.New("it is not known whether it was done")

// accepted returns nil if the answer to a PATCH says that the number will be n. Errors that wrap
// errUnknown say neither.
func (a *Actuator) accepted(got *answer, n int) error {
	if got.status >= 400 && got.status < 500 && got.status != http.StatusRequestTimeout {
		return a.refusal(got)
	}
	if got.status < 200 || got.status > 299 {
		return fmt.Errorf("%w: %w", errUnknown, a.refusal(got))
	}
	a.mu.Lock()
	a.pending = a.operationOf(got, n)
	a.mu.Unlock()
	if got.status == http.StatusAccepted {
		return nil
	}
	switch now, err := a.kind.read(got.body); {
	case err != nil:
		return fmt.Errorf("%w: the service answered %d: %w", errUnknown, got.status, err)
	case now.failed:
		return fmt.Errorf("%w: the service answered %d with a failed state", errUnknown, got.status)
	case now.instances != n:
		return fmt.Errorf("%w: the service answered %d with the number %d", errUnknown, got.status, now.instances)
	}
	return nil
}

// readBack finds out whether a change was made after its answer was lost.
func (a *Actuator) readBack(ctx context.Context, doing string, n int, lost error) error {
	now, err := a.read(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w, and it could not be read back: %w", doing, lost, err)
	case now.failed:
		return fmt.Errorf("%s: %w; read back, the change has failed: see the activity log of the resource", doing, lost)
	case now.instances != n:
		return fmt.Errorf("%s: %w; read back, the number is %d", doing, lost, now.instances)
	}
	return nil
}

// read reads the resource.
func (a *Actuator) read(ctx context.Context) (state, error) {
	body, err := a.get(ctx, a.address(""))
	if err != nil {
		return state{}, err
	}
	return a.kind.read(body)
}

// operation is a change that Azure has accepted and may still carry out.
type operation struct {
	instances int
	began     time.Time
	url       string
	status    bool      // the url has the status of the operation, and not only its end
	next      time.Time // when the service wants to be asked again
}

// operationOf returns the operation that an answer names, or nil. The token must not go to another
// server.
func (a *Actuator) operationOf(got *answer, n int) *operation {
	o := &operation{instances: n, began: time.Now(), url: got.header.Get("Azure-AsyncOperation"), status: true}
	if o.url == "" {
		o.url, o.status = got.header.Get("Location"), false
	}
	if u, err := url.Parse(o.url); err != nil || u.Scheme != a.endpoint.Scheme || !strings.EqualFold(u.Host, a.endpoint.Host) {
		return nil
	}
	o.next = time.Now().Add(got.wait())
	return o
}

// follow asks for the operation that is pending, if it is time. It returns an error if that has
// failed.
func (a *Actuator) follow(ctx context.Context) error {
	a.mu.Lock()
	if a.pending != nil && time.Since(a.pending.began) > maxOperation {
		a.pending = nil
	}
	o := a.pending
	early := o != nil && time.Now().Before(o.next)
	a.mu.Unlock()
	if o == nil || early {
		return nil
	}
	got, err := a.send(ctx, http.MethodGet, o.url, nil)
	if err != nil || got.status == http.StatusTooManyRequests || got.status >= 500 {
		return nil // the number matters more, and is known; the operation is asked for again
	}
	ended, failure := o.result(got)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case !ended:
		o.next = time.Now().Add(got.wait())
	case a.pending == o:
		a.pending = nil
	}
	if failure == "" {
		return nil
	}
	return fmt.Errorf("the change of %s to %d instances, accepted at %s, has failed: %s; how many there are is read again at the next measurement",
		a.name, o.instances, o.began.Format(time.TimeOnly), failure)
}

// result says whether the operation has ended, and why it failed if it did. One that cannot be
// asked for has ended.
func (o *operation) result(got *answer) (ended bool, failure string) {
	if !o.status {
		lost := got.status == http.StatusUnauthorized || got.status == http.StatusForbidden || got.status == http.StatusNotFound || got.status == http.StatusGone
		if got.status >= 400 && !lost {
			return true, got.problem()
		}
		return got.status != http.StatusAccepted, ""
	}
	var body struct{ Status string }
	if got.status > 299 || json.Unmarshal(got.body, &body) != nil {
		return true, ""
	}
	switch strings.ToLower(body.Status) {
	case "failed", "canceled":
		return true, got.problem()
	case "succeeded", "":
		return true, ""
	}
	return false, ""
}

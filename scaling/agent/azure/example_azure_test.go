package azure_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/millrace/millrace/scaling/agent/azure"
)

// tiny stands for Azure: a scale set that has two machines until it is changed.
type tiny struct{ set string }

func (c *tiny) Do(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		change, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		fmt.Println("Azure is asked for", string(change))
		c.set = string(change)
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(c.set)), Header: http.Header{}}, nil
}

// An agent would call the actuator: put it into the Actuator of an agent.Pool. In Azure, leave
// Credential and Transport out.
func ExampleNew() {
	const id = "/subscriptions/01234567-89ab-cdef-0123-456789abcdef/resourceGroups/shop/providers/Microsoft.Compute/virtualMachineScaleSets/orders"
	a, err := azure.New(id, &azure.Options{Credential: credential{}, Transport: &tiny{`{"sku": {"capacity": 2}}`}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	fmt.Println(a.Instances(ctx))
	fmt.Println(a.Scale(ctx, 2)) // nothing to change
	fmt.Println(a.Scale(ctx, 5))
	fmt.Println(a.Instances(ctx))
	// Output:
	// 2 <nil>
	// <nil>
	// Azure is asked for {"sku":{"capacity":5}}
	// <nil>
	// 5 <nil>
}

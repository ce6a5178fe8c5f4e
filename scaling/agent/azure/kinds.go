package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

var containerApps = &kind{
	name: "container app", provider: "Microsoft.App/containerApps", apiVersion: "2025-01-01",
	read: readContainerApp,
	change: func(now state, n int) any {
		template := map[string]any{"scale": map[string]any{"minReplicas": n, "maxReplicas": max(n, 1)}}
		if now.suffix != "" {
			template["revisionSuffix"] = nil // removes it
		}
		return map[string]any{"properties": map[string]any{"template": template}}
	},
}

var scaleSets = &kind{
	name: "scale set", provider: "Microsoft.Compute/virtualMachineScaleSets", apiVersion: "2024-07-01",
	read: readScaleSet,
	change: func(_ state, n int) any {
		return map[string]any{"sku": map[string]any{"capacity": n}}
	},
}

// readContainerApp reads a container app, as described in
// https://github.com/Azure/azure-rest-api-specs/blob/main/specification/app/resource-manager/Microsoft.App/stable/2025-01-01/ContainerApps.json
// and its CommonDefinitions.json.
func readContainerApp(body []byte) (state, error) {
	var app struct {
		Properties struct {
			ProvisioningState, RunningStatus, LatestReadyRevisionName string

			Configuration struct{ ActiveRevisionsMode string }
			Template      *struct {
				RevisionSuffix string
				Scale          struct {
					MinReplicas, MaxReplicas *int
					Rules                    []json.RawMessage
				}
			}
		}
	}
	if err := decode(body, &app); err != nil {
		return state{}, err
	}
	p := app.Properties
	if p.Template == nil {
		return state{}, errors.New("the answer has no properties.template")
	}
	least, greatest := 0, 10 // the service's defaults
	if p.Template.Scale.MinReplicas != nil {
		least = *p.Template.Scale.MinReplicas
	}
	if p.Template.Scale.MaxReplicas != nil {
		greatest = *p.Template.Scale.MaxReplicas
	}
	rules := len(p.Template.Scale.Rules) > 0
	none := least == 0 && greatest <= 1 && !rules
	switch {
	case strings.EqualFold(p.Configuration.ActiveRevisionsMode, "Multiple"):
		return state{}, errors.New("it is in multiple revision mode, in which each change would leave the old replicas running: az containerapp revision set-mode --mode single")
	case strings.EqualFold(p.RunningStatus, "Stopped"):
		return state{}, errors.New("it is stopped: start it in the portal, or remove its pool from the agent")
	case least < 0 || greatest < least:
		return state{}, fmt.Errorf("the answer has minReplicas %d and maxReplicas %d", least, greatest)
	case least != greatest && !none:
		return state{}, fmt.Errorf("minReplicas is %d and maxReplicas %d, so it scales itself too: give both the same number, "+
			"az containerapp update --min-replicas N --max-replicas N", least, greatest)
	}
	return state{
		instances: least, failed: failed(p.ProvisioningState), rules: rules,
		ready: p.LatestReadyRevisionName, suffix: p.Template.RevisionSuffix,
	}, nil
}

// replicas returns how many replicas a revision of a container app runs.
func (a *Actuator) replicas(ctx context.Context, revision string) (int, error) {
	if revision == "" {
		return 0, errors.New("no revision has become ready: deploy one that does")
	}
	body, err := a.get(ctx, a.address("/revisions/"+url.PathEscape(revision)))
	if err != nil {
		return 0, err
	}
	var r struct{ Properties struct{ Replicas *int } }
	if err := decode(body, &r); err != nil {
		return 0, err
	}
	if r.Properties.Replicas == nil || *r.Properties.Replicas < 0 {
		return 0, errors.New("the answer has no properties.replicas")
	}
	return *r.Properties.Replicas, nil
}

// readScaleSet reads a scale set, as described in
// https://learn.microsoft.com/en-us/rest/api/compute/virtual-machine-scale-sets/get with its fields.
func readScaleSet(body []byte) (state, error) {
	var set struct {
		SKU        struct{ Capacity *int }
		Properties struct{ ProvisioningState string }
	}
	if err := decode(body, &set); err != nil {
		return state{}, err
	}
	if set.SKU.Capacity == nil || *set.SKU.Capacity < 0 {
		return state{}, errors.New("the answer has no sku.capacity")
	}
	return state{instances: *set.SKU.Capacity, failed: failed(set.Properties.ProvisioningState)}, nil
}

// failed reports whether the last change of a resource failed.
func failed(provisioningState string) bool {
	return strings.EqualFold(provisioningState, "Failed") || strings.EqualFold(provisioningState, "Canceled")
}

// decode decodes an answer. Errors do not repeat it.
func decode(body []byte, to any) error {
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("the answer is not the JSON of the resource, as if a proxy had sent it: %.200s", err.Error())
	}
	return nil
}

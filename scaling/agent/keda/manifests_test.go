package keda

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/millrace/millrace/internal/agentfile"
	"github.com/millrace/millrace/internal/azuritetest"
)

// deploy is the folder with the manifests.
const deploy = "../../../deploy/keda"

// validator returns what validates files with the schemas of Kubernetes 1.30 and of KEDA's resources, without a cluster or a network. If kubectl-validate is
// missing the test is skipped, or fails if MILLRACE_REQUIRE contains kubectl-validate.
func validator(t *testing.T) func(files ...string) (output string, err error) {
	t.Helper()
	program, err := exec.LookPath("kubectl-validate")
	if err != nil {
		if azuritetest.Required("kubectl-validate") {
			t.Fatal(err)
		}
		t.Skip("kubectl-validate is missing: go install sigs.k8s.io/kubectl-validate@v0.0.4")
	}
	module, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kedacore/keda/v2").Output()
	if err != nil {
		t.Fatal(err)
	}
	resources := filepath.Join(strings.TrimSpace(string(module)), "config", "crd", "bases")
	return func(files ...string) (string, error) {
		c := exec.CommandContext(t.Context(), program, append([]string{"--version", "1.30", "--local-crds", resources}, files...)...)
		// It would ask a cluster, or the network for schemas that it lacks.
		nowhere := "http://127.0.0.1:1"
		c.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=" + os.DevNull, "HTTP_PROXY=" + nowhere, "HTTPS_PROXY=" + nowhere}
		out, err := c.CombinedOutput()
		return string(out), err
	}
}

func manifests(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(deploy, "*.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("got the manifests %v, %v, want at least four", files, err)
	}
	return files
}

func TestTheManifestsAreValid(t *testing.T) {
	validate := validator(t)
	out, err := validate(manifests(t)...)
	if err != nil || strings.Count(out, "OK") != len(manifests(t)) {
		t.Errorf("got %v:\n%s", err, out)
	}
}

// A check that accepts everything would prove nothing: each kind of manifest is refused when it is wrong.
func TestWrongManifestsAreRefused(t *testing.T) {
	validate := validator(t)
	for _, test := range []struct{ file, old, new, want string }{
		{"scaledobject.yaml", "pollingInterval: 10", "polingInterval: 10", "polingInterval"},
		{"scaledobject.yaml", "cooldownPeriod: 0", "cooldownPeriod: -1", "cooldownPeriod"},
		{"scaledobject.yaml", "maxReplicaCount: 20", `maxReplicaCount: "20"`, "maxReplicaCount"},
		{"scaledobject.yaml", "stabilizationWindowSeconds: 0", "stabilizationWindow: 0", "stabilizationWindow"},
		{"scaledobject.yaml", "v1alpha1", "v1", "keda.sh/v1"},
		{"scaledobject.yaml", "pool: orders", "pool: [orders]", "pool"},
		{"tls.yaml", "secretTargetRef:", "secretTargetRefs:", "secretTargetRefs"},
		{"tls.yaml", "parameter: caCert, ", "", "parameter"},
		{"worker.yaml", "terminationGracePeriodSeconds: 50", "terminationGracePeriodSeconds: 50s", "terminationGracePeriodSeconds"},
		{"worker.yaml", "httpGet: {path: /healthz, port: http}", "httpGet: {path: /healthz}", "port"},
		{"scaler.yaml", "verbs: [get]", "verbs: get", "verbs"},
		{"scaler.yaml", "replicas: 1", "replicas: one", "replicas"},
		{"scaler.yaml", "grpc: {port: 9090}", "grpc: {port: grpc}", "port"},
		{"scaler.yaml", "kind: NetworkPolicy", "kind: NetworkPolicies", "NetworkPolicies"},
	} {
		text, err := os.ReadFile(filepath.Join(deploy, test.file))
		if err != nil {
			t.Fatal(err)
		}
		wrong := strings.Replace(string(text), test.old, test.new, 1)
		if wrong == string(text) {
			t.Errorf("%s has no %q", test.file, test.old)
			continue
		}
		path := filepath.Join(t.TempDir(), test.file)
		if err := os.WriteFile(path, []byte(wrong), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := validate(path); err == nil || !strings.Contains(out, test.want) {
			t.Errorf("%s with %q: got %v, want an error about %s:\n%s", test.file, test.new, err, test.want, out)
		}
	}
}

// manifest is what these tests read of any resource.
type manifest struct {
	Kind     string
	Metadata struct{ Name, Namespace string }
	Data     map[string]string
	Spec     struct {
		Replicas *int
		Strategy struct{ Type string }
		Ports    []struct{ Port int }
		Template struct {
			Spec struct {
				TerminationGracePeriodSeconds int `yaml:"terminationGracePeriodSeconds"`
				Containers                    []struct{ Args []string }
			}
		}
		ScaleTargetRef  struct{ Name string } `yaml:"scaleTargetRef"`
		MinReplicaCount int                   `yaml:"minReplicaCount"`
		MaxReplicaCount int                   `yaml:"maxReplicaCount"`
		CooldownPeriod  *int                  `yaml:"cooldownPeriod"`
		Fallback        any
		Triggers        []struct {
			Type, MetricType string
			Metadata         map[string]string
		}
		Advanced struct {
			Config struct {
				Behavior map[string]struct {
					Window   *int `yaml:"stabilizationWindowSeconds"`
					Policies []struct {
						Type  string
						Value int
					}
				}
			} `yaml:"horizontalPodAutoscalerConfig"`
		}
	}
}

// read returns the manifest of a kind.
func read(t *testing.T, file, kind string) manifest {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(deploy, file))
	if err != nil {
		t.Fatal(err)
	}
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", file, kind)
		} else if err != nil {
			t.Fatal(err)
		}
		if m.Kind == kind {
			return m
		}
	}
}

// What must agree in several manifests does, or the policy would not decide alone.
func TestTheManifestsAgree(t *testing.T) {
	object, worker := read(t, "scaledobject.yaml", "ScaledObject"), read(t, "worker.yaml", "Deployment")
	scaler, service := read(t, "scaler.yaml", "Deployment"), read(t, "scaler.yaml", "Service")
	file, err := agentfile.Parse("agent.yaml", []byte(read(t, "scaler.yaml", "ConfigMap").Data["agent.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	pool := file.Pools[0]
	trigger := object.Spec.Triggers[0]
	target := worker.Metadata.Namespace + "/" + worker.Metadata.Name
	role := read(t, "scaler.yaml", "Role")
	up, down := object.Spec.Advanced.Config.Behavior["scaleUp"], object.Spec.Advanced.Config.Behavior["scaleDown"]
	for what, ok := range map[string]bool{
		"the trigger pushes":                      trigger.Type == "external-push",
		"the trigger has the pool of the file":    trigger.Metadata["pool"] == pool.Name,
		"the trigger has the Service's address":   trigger.Metadata["scalerAddress"] == service.Metadata.Name+"."+service.Metadata.Namespace+".svc.cluster.local:9090",
		"the Service has that port":               service.Spec.Ports[0].Port == 9090,
		"the upper bound is that of the policy":   object.Spec.MaxReplicaCount == pool.Policy.Max,
		"the lower bound is that of the policy":   object.Spec.MinReplicaCount == 0 && pool.Policy.ToZero && pool.Policy.Min == 0,
		"KEDA does not wait":                      object.Spec.CooldownPeriod != nil && *object.Spec.CooldownPeriod == 0,
		"nothing replaces the number":             object.Spec.Fallback == nil,
		"scaling up does not wait":                up.Window != nil && *up.Window == 0,
		"scaling up takes any step":               up.Policies[0].Type == "Pods" && up.Policies[0].Value >= object.Spec.MaxReplicaCount,
		"scaling down does not wait":              down.Window != nil && *down.Window == 0,
		"scaling down takes any step":             down.Policies[0].Type == "Percent" && down.Policies[0].Value == 100,
		"KEDA scales the worker":                  object.Spec.ScaleTargetRef.Name == worker.Metadata.Name && object.Metadata.Namespace == worker.Metadata.Namespace,
		"only KEDA sets the worker's replicas":    worker.Spec.Replicas == nil,
		"the worker may finish its jobs":          time.Duration(worker.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second >= 30*time.Second+15*time.Second+2*time.Second,
		"the scaler may finish":                   time.Duration(scaler.Spec.Template.Spec.TerminationGracePeriodSeconds)*time.Second > 2*drain,
		"there is one scaler":                     *scaler.Spec.Replicas == 1 && scaler.Spec.Strategy.Type == "Recreate",
		"the scaler knows the worker":             slices.Contains(scaler.Spec.Template.Spec.Containers[0].Args, pool.Name+"="+target),
		"the scaler may read the worker's number": role.Metadata.Namespace == worker.Metadata.Namespace,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
}

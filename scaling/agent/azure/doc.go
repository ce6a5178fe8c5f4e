// Package azure scales a container app of Azure Container Apps, or a virtual machine scale set,
// through the management API of Azure. [Actuator] implements agent.Actuator.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # The number
//
// Instances returns the number that the resource is asked to have, which includes instances that
// are starting and excludes those that are stopping. Beacons tell the agent how many work.
// If the last change of a container app failed, Instances returns how many replicas the last ready
// revision runs.
//
// # Container Apps
//
// Scale sets minReplicas and maxReplicas to the same number by one JSON Merge Patch; for 0 they are
// 0 and 1.
// https://learn.microsoft.com/en-us/rest/api/resource-manager/containerapps/container-apps/update
//
//   - Each change replaces every replica. Limits of scale are part of the template, and each change
//     of the template makes a new revision. The old one is shut down as soon as the new one is
//     ready: its replicas get SIGTERM, and are killed after terminationGracePeriodSeconds, by
//     default 30 s. Meanwhile both run. Jobs that take longer run again.
//     https://learn.microsoft.com/en-us/azure/container-apps/revisions
//     https://learn.microsoft.com/en-us/azure/container-apps/application-lifecycle-management
//   - The app must be in single revision mode: in multiple mode the old revisions would keep
//     running. An app in multiple mode is refused, and so is one that is stopped.
//   - An app with another maximum than minimum scales itself, and is refused: two would decide.
//     With 0 and 1 it has 0 instances if it has no rules. With rules it is not scaled to 0, because
//     they could start a replica.
//   - A revision's suffix cannot be used twice, so a suffix in the template is removed with the
//     change.
//     https://github.com/microsoft/azure-container-apps/issues/1278
//   - The last replica goes after the cool-down of 300 s. At most 1,000 replicas.
//     https://learn.microsoft.com/en-us/azure/container-apps/scale-app
//
// # Scale sets
//
// Scale sets sku.capacity.
// https://learn.microsoft.com/en-us/rest/api/compute/virtual-machine-scale-sets/update
//
//   - A change leaves the other machines alone. The scale-in policy chooses the surplus ones, after
//     zones and fault domains are balanced, and knows nothing of their jobs. Machines with instance
//     protection stay.
//     https://learn.microsoft.com/en-us/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-scale-in-policy
//   - A machine is deleted with its jobs. A termination notification announces that 5 to 15
//     minutes before, so that its workers can finish.
//     https://learn.microsoft.com/en-us/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-terminate-notification
//   - The capacity includes machines that failed to start. At most 1,000 instances. Remove an
//     autoscale setting of the set: it would change the number too.
//
// # Requests
//
// Instances sends one GET, one more for an operation that Azure still carries out, and one more
// after a failed change. Scale sends one GET, and one PATCH unless there is nothing to change. No
// request is repeated: the agent decides anew at its next measurement. If a PATCH has no usable
// answer, one GET reads back whether it was done. After a 429 or 503 nothing is sent before the
// time in Retry-After: 10 s without one, and an hour at most. After a failed change Scale waits
// 2 min before the next one. Each request has 9 s, and no more than 1 MiB of an answer is read.
// Redirects are not followed.
// https://learn.microsoft.com/en-us/azure/azure-resource-manager/management/request-limits-and-throttling
//
// Scale does not wait for the end of the operation that it starts. Later calls of Instances ask for
// it for up to 2 h, at the times that the service says or every 10 s, and return its failure once,
// as an error with the reason of the service. The identity may not be allowed to ask, because the
// address of an operation is outside the resource; then only the state of the resource tells of a
// failure.
// https://learn.microsoft.com/en-us/azure/azure-resource-manager/management/async-operations
//
// # Permissions
//
// Microsoft.App/containerApps/read, /write, and /revisions/read; or
// Microsoft.Compute/virtualMachineScaleSets/read and /write, and
// Microsoft.Compute/locations/operations/read for the reasons of failures. docs/agent.md has the
// roles and the lines of az.
//
// # Concurrency and shutdown
//
// An Actuator is safe for concurrent use. It has no goroutines and need not be closed. The end of a
// context ends the request in progress; a change may still be made then, and the next Instances
// sees it.
package azure

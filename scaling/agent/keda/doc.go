// Package keda lets KEDA scale Deployments as an agent decides: it is the external scaler that KEDA asks, over gRPC, how many instances
// a pool should have. The program millrace-keda in cmd/millrace-keda does this for the pools of a file.
//
// A [Pool] is the actuator of the pool of an agent, and a [Server] tells KEDA what it was asked for. KEDA's trigger has the type
// external-push, and its metadata name the pool:
//
//	triggers:
//	  - type: external-push
//	    metadata:
//	      scalerAddress: millrace-keda.millrace:9090
//	      pool: worker
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # What KEDA is told
//
// The metric is called [Metric]. Its value is the number of instances that the agent last decided, its target is an average of 1, so that the
// HorizontalPodAutoscaler wants exactly that many: the number divided by one, rounded up. The number is never recomputed from depths.
// While an agent does not know what to decide, because measuring failed, its last number stands.
//
// A pool is active unless the last decision was zero. KEDA starts the first instance as soon as a pool becomes active, told by the stream of
// StreamIsActive; it ignores when the same stream says that it no longer is, and removes the last instance when its own poll, IsActive,
// says so. StreamMetricSpec sends the target once and stays open: the target never changes.
//
// A pool of which no number is known yet has no metric and no activity: the answer is the error Unavailable, on which KEDA and the
// HorizontalPodAutoscaler leave the Deployment as it is. That is so from the start of the process until the number of replicas was read
// from the platform, so that a scaler that has just started never asks for fewer than there are.
//
// Errors are those of gRPC: InvalidArgument without a pool in the metadata, NotFound for an unknown pool or metric, Unavailable before the
// first number and during shutdown, ResourceExhausted for too many streams.
//
// # Concurrency
//
// Pools and servers are safe for concurrent use. Every server may be asked by any number of ScaledObjects. What clients can take is
// bounded: 256 connections, 100 calls at once on each, 1,024 streams in all, 64 KiB for a request. A stream holds no queue: one that reads slowly
// misses states that have passed, and gets the newest.
//
// # Shutdown
//
// [Server.Run] reports that it no longer serves, ends all streams with success, so that KEDA connects again after two seconds and not
// after up to a minute, waits up to 5 s for calls, and closes the connections. KEDA then leaves the Deployment as it is until a
// server answers again.
//
// # Cost
//
// Serving sends no request to a queue: the agent does that. Of Kubernetes a pool reads one number, at the start.
package keda

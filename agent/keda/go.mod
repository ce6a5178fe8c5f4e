module github.com/millrace/millrace/agent/keda

go 1.26.0

replace github.com/millrace/millrace => ../..

require (
	github.com/kedacore/keda/v2 v2.21.0
	github.com/millrace/millrace v0.0.0
	go.uber.org/goleak v1.3.0
	golang.org/x/net v0.58.0
	google.golang.org/grpc v1.84.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260904194346-d0f1323225a4 // indirect
)

// Millrace-keda is an external scaler for KEDA: it measures queues, decides how many replicas the Deployments of their workers should have, and
// tells KEDA.
//
//	millrace-keda -deployment orders=jobs/orders-worker agent.yaml
//
// The file is that of the command millrace agent, see package agentfile, without processes. Each of its pools needs a flag -deployment with the
// namespace and the name of its Deployment, whose number of replicas is read at the start. The program must therefore run in the cluster.
// deploy/keda/README.md in the repository has what KEDA needs.
//
// SIGTERM and Ctrl-C end it with status 0; the Deployments then stay as they are until it runs again. Wrong flags are status 2, and all
// other failures status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"github.com/millrace/millrace/agent/agentfile"
	"github.com/millrace/millrace/agent/keda/deployment"
)

func main() {
	os.Exit(command(context.Background(), os.Args[1:], os.Stderr))
}

// command runs the program and returns its status.
func command(ctx context.Context, args []string, output io.Writer) int {
	s, err := parse(args, output)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		_, _ = fmt.Fprintln(output, "millrace-keda:", err) // there is no other place to say it
		return 2
	}
	if err := serve(ctx, s, slog.New(slog.NewTextHandler(output, nil))); err != nil {
		_, _ = fmt.Fprintln(output, "millrace-keda:", err)
		return 1
	}
	return 0
}

// serve does what the settings say, until ctx ends or a signal comes.
func serve(ctx context.Context, s *settings, logger *slog.Logger) error {
	file, err := agentfile.Read(s.file)
	if err != nil {
		return err
	}
	config, err := s.tls.config()
	if err != nil {
		return err
	}
	cluster, err := deployment.InCluster()
	if err != nil {
		return err
	}
	p, err := newProgram(file, s.deployments, cluster.Replicas, logger)
	if err != nil {
		return err
	}
	defer p.close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.addr)
	if err != nil {
		return err
	}
	logger.InfoContext(ctx, "listening", "address", l.Addr().String(), "tls", config != nil)
	return p.run(ctx, l, config)
}

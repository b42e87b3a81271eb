package temporalconntest

import (
	"context"
	"net"
	"sync"
	"testing"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	grpchealth "google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// Serve serves a frontend of Temporal on a listener until the test ends. It is healthy, and its errors have the status that a
// client expects.
func Serve(t *testing.T, l net.Listener, frontend workflowservice.WorkflowServiceServer) {
	t.Helper()
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			out, err := handle(ctx, in)
			if err != nil {
				return nil, serviceerror.ToStatus(err).Err()
			}
			return out, nil
		}))
	workflowservice.RegisterWorkflowServiceServer(server, frontend)
	alive := grpchealth.NewServer()
	alive.SetServingStatus("temporal.api.workflowservice.v1.WorkflowService", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(server, alive)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
}

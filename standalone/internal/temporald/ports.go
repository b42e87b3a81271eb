package temporald

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/primitives"
)

// loopback is where every service but the frontend listens.
var loopback = net.IPv4(127, 0, 0, 1) //nolint:gochecknoglobals // a constant that Go cannot write as one

// ports are where the services listen.
type ports struct {
	frontend net.TCPAddr
	internal map[primitives.ServiceName]int
}

// findPorts finds a free port for every service and checks that the frontend's is free.
func findPorts(frontend net.TCPAddr) (_ ports, err error) {
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			err = errors.Join(err, l.Close())
		}
	}()
	listen := func(addr net.TCPAddr) (int, error) {
		l, err := net.ListenTCP("tcp", &addr)
		if err != nil {
			return 0, fmt.Errorf("Temporal's address %s: %w", addr.String(), rootCause(err))
		}
		listeners = append(listeners, l)
		bound, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			return 0, fmt.Errorf("Temporal's address %s: bound to %s", addr.String(), l.Addr())
		}
		return bound.Port, nil
	}

	p := ports{frontend: frontend, internal: map[primitives.ServiceName]int{}}
	if p.frontend.Port, err = listen(frontend); err != nil {
		return p, err
	}
	for _, service := range []primitives.ServiceName{
		primitives.HistoryService, primitives.MatchingService, primitives.WorkerService,
	} {
		if p.internal[service], err = listen(net.TCPAddr{IP: loopback}); err != nil {
			return p, err
		}
	}
	return p, nil
}

// rootCause leaves out what names the address a second time.
func rootCause(err error) error {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno
	}
	return err
}

// isAddressInUse also reads the text: on its way through the server's logger an error becomes one.
func isAddressInUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || strings.Contains(err.Error(), syscall.EADDRINUSE.Error())
}

// dial returns the frontend's address as seen from this machine.
func (p ports) dial() string {
	ip := p.frontend.IP
	if ip.IsUnspecified() {
		if ip.To4() != nil {
			ip = loopback
		} else {
			ip = net.IPv6loopback
		}
	}
	return net.JoinHostPort(ip.String(), strconv.Itoa(p.frontend.Port))
}

// listeners returns where the services listen.
func (p ports) listeners() []netip.AddrPort {
	all := []netip.AddrPort{p.frontend.AddrPort()}
	for _, port := range p.internal {
		all = append(all, (&net.TCPAddr{IP: loopback, Port: port}).AddrPort())
	}
	return all
}

// hosts says where the services find each other.
func (p ports) hosts() map[primitives.ServiceName]static.Hosts {
	hosts := map[primitives.ServiceName]static.Hosts{
		primitives.FrontendService: static.SingleLocalHost(p.dial()),
	}
	for service, port := range p.internal {
		hosts[service] = static.SingleLocalHost(net.JoinHostPort(loopback.String(), strconv.Itoa(port)))
	}
	return hosts
}

// services says what the services bind. Membership ports are not used with static hosts.
func (p ports) services() map[string]config.Service {
	services := map[string]config.Service{
		string(primitives.FrontendService): {RPC: config.RPC{GRPCPort: p.frontend.Port, BindOnIP: p.frontend.IP.String()}},
	}
	for service, port := range p.internal {
		services[string(service)] = config.Service{RPC: config.RPC{GRPCPort: port, BindOnIP: loopback.String()}}
	}
	return services
}

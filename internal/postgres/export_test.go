// Names for the tests, which are in a package of their own.

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const BeatEvery = beatEvery
const BeatLife = beatLife
const BeatTimeout = beatTimeout

func (s Caller) Acquire(ctx context.Context) (*pgxpool.Conn, error) { return s.acquire(ctx) }
func (s Caller) On(conn *pgxpool.Conn) Querier                      { return s.on(conn) }
func (s Caller) Use(ctx context.Context, op string, fn func(ctx context.Context, conn *pgxpool.Conn) error) error {
	return s.use(ctx, op, fn)
}

const ChannelName = channelName

func (s *clock) IDShift() time.Duration { return s.idShift() }
func (s *clock) Learn(sent time.Time, database time.Time, received time.Time) {
	s.learn(sent, database, received)
}
func (s *clock) Now() time.Time           { return s.now() }
func (s *Core) TimeToLive() time.Duration { return s.changes.timeToLive() }

type EndpointMoved = endpointMoved

var EnsurePartition = ensurePartition

type Partition = partition

func (t Partitioned) Partition(from time.Time) Partition { return t.partition(from) }

const FreshFor = freshFor

type Heartbeat = heartbeat

func (s *heartbeat) Alive() bool       { return s.alive() }
func (s *heartbeat) Beat(at time.Time) { s.beat(at) }
func (s *heartbeat) Stop()             { s.stop() }
func (s *listLimit) Acquire(ctx context.Context, tenant string) (func(), error) {
	return s.acquire(ctx, tenant)
}

const ListWait = listWait
const ListsPerTenant = listsPerTenant

var NewClock = newClock
var NewListLimit = newListLimit
var RemedyOf = remedyOf

type Reading = reading

const PoolerTimeout = poolerTimeout

type Rounds = rounds

func (r *rounds) Begin() bool { return r.begin() }

const RoundEvery = roundEvery
const StaleAfter = staleAfter

var TranslateWriter = translateWriter

// What the tests look into.

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const BeatEvery = beatEvery
const BeatLife = beatLife
const BeatTimeout = beatTimeout

func (s Caller) Acquire(a0 context.Context) (*pgxpool.Conn, error) { return s.acquire(a0) }
func (s Caller) On(a0 *pgxpool.Conn) Querier                       { return s.on(a0) }
func (s Caller) Use(a0 context.Context, a1 string, a2 func(ctx context.Context, conn *pgxpool.Conn) error) error {
	return s.use(a0, a1, a2)
}

const ChannelName = channelName

func (s *clock) IDShift() time.Duration                         { return s.idShift() }
func (s *clock) Learn(a0 time.Time, a1 time.Time, a2 time.Time) { s.learn(a0, a1, a2) }
func (s *clock) Now() time.Time                                 { return s.now() }
func (s *Core) TimeToLive() time.Duration                       { return s.timeToLive() }

type EndpointMoved = endpointMoved

var EnsurePartition = ensurePartition

const FreshFor = freshFor

type Heartbeat = heartbeat

func (s *heartbeat) Alive() bool                                           { return s.alive() }
func (s *heartbeat) Beat(a0 time.Time)                                     { s.beat(a0) }
func (s *heartbeat) Stop()                                                 { s.stop() }
func (s *listLimit) Acquire(a0 context.Context, a1 string) (func(), error) { return s.acquire(a0, a1) }

const ListWait = listWait
const ListsPerTenant = listsPerTenant

var NewClock = newClock
var NewListLimit = newListLimit

type Reading = reading

var RegisterColumns = registerColumns

const SettingRole = settingRole
const StaleAfter = staleAfter

var TranslateWriter = translateWriter

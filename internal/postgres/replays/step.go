package replays

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/everpost/everpost/internal/postgres"
	"github.com/everpost/everpost/internal/webhook"
)

// replaySilence is how long the workflow of a running replay may write nothing before TakeReplays
// returns the replay.
const replaySilence = 10 * time.Minute

// StepReplay writes a step of a replay if it comes after the stored one, and that is open. It returns the
// stored status in either case. A replay that the step queues runs at once if there is room.
// CodeNotFound: there is no such replay.
func (s *Replays) StepReplay(ctx context.Context, step webhook.ReplayStep) (webhook.ReplayStatus, error) {
	var status webhook.ReplayStatus
	err := s.core.AsWorker().InTx(ctx, "record a replay", func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update replays set seq = $2, state_reason = $4, rate = $6, started = true,
				state = $3::smallint,
				asked = case when command_id <= $7 then $5 else asked end,
				command = case when command_id <= $7 or $3::smallint `+postgres.ReplayIsOver+` then 0 else command end,
				command_rate = case when command_id <= $7 or $3::smallint `+postgres.ReplayIsOver+` then 0 else command_rate end,
				completed_at = case when $3::smallint `+postgres.ReplayIsOver+` then now() end,
				relay_at = case when $3::smallint `+postgres.ReplayIsOver+` then null when command_id > $7 then relay_at
					when $3::smallint = `+postgres.ReplayRunning+` then now() + $8::bigint * interval '1 millisecond' end
			where id = $1 and seq < $2 and state `+postgres.ReplayIsOpen,
			step.ID, step.Seq, int16(step.State), step.Reason, step.Asked, step.Rate, step.CommandDone, replaySilence.Milliseconds())
		if err != nil {
			return err
		}
		if step.State == webhook.ReplayQueued && tag.RowsAffected() > 0 {
			if err := s.admitAgain(ctx, tx, step.ID); err != nil {
				return err
			}
		}
		if !step.State.Open() { // its outcomes are not counted any more
			if _, err = tx.Exec(ctx, `delete from replay_releases where replay_id = $1
				and exists (select from replays where id = $1 and state `+postgres.ReplayIsOver+`)`, step.ID); err != nil {
				return err
			}
		}
		if step.State == webhook.ReplayCompleted && tag.RowsAffected() > 0 {
			r, err := readReplay(ctx, tx, step.ID)
			if err != nil {
				return err
			}
			if err := s.events.NoteReplay(ctx, tx, &r); err != nil {
				return err
			}
		}
		status, err = replayStatus(ctx, tx, step.ID)
		return err
	})
	return status, err
}

// replayStatus reads the status of a replay.
func replayStatus(ctx context.Context, tx pgx.Tx, id webhook.ReplayID) (webhook.ReplayStatus, error) {
	var (
		st             webhook.ReplayStatus
		state, command int16
		checkAt        *time.Time
		limit          *float64
	)
	err := tx.QueryRow(ctx, `
		select r.seq, r.state, r.state_reason, r.asked, r.rate, r.ramp, r.total, r.released, r.skipped, r.delivered, r.failed, r.exhausted,
			r.command, r.command_rate, r.command_id,
			(select min(check_at) from replay_releases where replay_id = r.id),
			(select rate_limit from endpoints where id = r.endpoint_id)
		from replays r where r.id = $1`, id).Scan(
		&st.Seq, &state, &st.Reason, &st.Asked, &st.Rate, &st.Ramp, &st.Total, &st.Released, &st.Skipped, &st.Delivered, &st.Failed, &st.Exhausted,
		&command, &st.Command.Rate, &st.Command.ID, &checkAt, &limit)
	if postgres.IsNoRows(err) {
		return st, webhook.NotFound("replay")
	}
	st.State = webhook.ReplayState(state)             //nolint:gosec // written by us
	st.Command.Action = webhook.ReplayAction(command) //nolint:gosec // written by us
	st.CheckAt = postgres.OrZero(checkAt)
	st.Ceiling = webhook.MaxReplayRate
	if limit != nil {
		st.Ceiling = max(1, int(min(*limit*60, webhook.MaxReplayRate)))
	}
	return st, err
}

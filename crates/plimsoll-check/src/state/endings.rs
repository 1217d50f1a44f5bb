//! How jobs and reservations end: cancelled, failed, withdrawn, or given up with all that they hold.

use super::*;

impl Step<'_> {
    pub(crate) fn cancel(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        let at = self.state.actors[actor].at;
        let is_job = matches!(self.setup.kind(actor), Kind::Job(_));
        if let At::Running(_) = at {
            self.state.actors[actor].abandoned = true;
            self.state.ledger.end(id, &mut self.out);
            return self.pass_on();
        }
        self.state.actors[actor].at = At::Gone;
        if let At::Waiting(_) = at {
            self.state.ledger.withdraw(id, &mut self.out);
            self.pass_on()?;
        }
        if let At::Waiting(stage) | At::Between(stage) = at
            && is_job
        {
            self.ends_with_its_parts(actor, stage.checked_sub(1));
        }
        // What a part holds when it ends would be its parent's.
        if self.setup.parent(actor).is_some() {
            self.drop_all(actor)?;
            self.state.actors[actor].id = Some(id);
        }
        if is_job {
            self.forget(actor)?;
        }
        self.drop_all(actor)
    }

    /// A part has ended: what it left is its parent's.
    pub(crate) fn end_part(&mut self, actor: usize, parent: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        self.state.ledger.end(id, &mut self.out);
        let part = &mut self.state.actors[actor];
        (part.at, part.id) = (At::Gone, None);
        let left = std::mem::take(&mut part.pieces).into_iter().map(|(class, bytes)| (id, class, bytes));
        if self.state.actors[parent].at == At::Ending {
            // Nobody is there any more who could use it.
            for (part, class, bytes) in left {
                self.state.ledger.drop_piece(part, class, Bytes(bytes), &mut self.out);
            }
        } else {
            self.state.actors[parent].inherited.extend(left);
        }
        self.wind_up(parent);
        self.pass_on()
    }

    /// A job that was given up is over as soon as its last part is.
    pub(crate) fn wind_up(&mut self, actor: usize) {
        if self.state.actors[actor].at == At::Ending && !self.state.has_parts_in_flight(self.setup, actor) {
            let ended = &mut self.state.actors[actor];
            (ended.at, ended.id, ended.ended_in) = (At::Gone, None, None);
            if let Some(parent) = self.setup.parent(actor) {
                self.wind_up(parent);
            }
        }
    }

    /// A job that is given up goes on to hold its slots while parts of it are in flight.
    pub(crate) fn ends_with_its_parts(&mut self, actor: usize, stage: Option<usize>) {
        if self.state.has_parts_in_flight(self.setup, actor) {
            let ending = &mut self.state.actors[actor];
            (ending.at, ending.ended_in) = (At::Ending, stage);
        }
    }

    /// Puts what parts have left together with what the job has of the same class.
    pub(crate) fn take_in(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        for (part, class, bytes) in std::mem::take(&mut self.state.actors[actor].inherited) {
            let piece = self.piece(actor, class);
            if piece == 0 {
                self.state.ledger.attach(id, class);
            }
            set(&mut self.state.actors[actor].pieces, class, piece + bytes);
            self.state.ledger.drop_piece(part, class, Bytes::ZERO, &mut self.out);
            self.pass_on()?;
        }
        Ok(())
    }

    pub(crate) fn withdraw(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        self.state.actors[actor].withdraws_left -= 1;
        match self.state.actors[actor].at {
            At::Waiting(stage) => {
                self.state.actors[actor].at = At::Between(stage);
                self.state.ledger.withdraw(id, &mut self.out);
                if stage == 0 && self.state.actors[actor].admitted && !self.state.actors[actor].stays {
                    self.step_back(actor);
                }
            }
            At::Running(stage) => {
                // The grant arrived, and nobody took it.
                let left = std::mem::take(&mut self.state.actors[actor].left);
                let peak = &self.setup.profile(self.state, actor).stages()[stage].peak;
                let mut granted: Granted =
                    left.into_iter().map(|(class, bytes)| (Resource::Class(class), bytes)).collect();
                self.state.actors[actor].at = At::Between(stage);
                let before: Vec<(Resource, u64)> = self.state.holdings(self.setup, actor);
                let slots = |entry: &(Resource, u64)| {
                    class_of(entry.0).is_none() && !lost::is_lost_resource(self.state, entry.0)
                };
                for (resource, peak) in peak.iter().filter(slots) {
                    let kept = before.iter().find(|entry| entry.0 == resource).map_or(0, |entry| entry.1);
                    if peak > kept {
                        granted.push((resource, peak - kept));
                    }
                }
                self.state.ledger.undo_enter(id, stage, &granted, &mut self.out);
                self.state.actors[actor].admitted = stage == 0;
                if stage == 0 && !self.state.actors[actor].stays {
                    self.step_back(actor);
                }
            }
            _ => unreachable!("it waits, or has just been granted"),
        }
        if let Some(parent) = self.setup.parent(actor) {
            self.wind_up(parent);
        }
        self.pass_on()
    }

    pub(crate) fn fail(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        let At::Running(stage) = self.state.actors[actor].at else { unreachable!("a stage is running") };
        self.return_extra(actor)?;
        self.take_in(actor)?;
        for (class, bytes) in std::mem::take(&mut self.state.actors[actor].pieces) {
            self.state.ledger.drop_piece(id, class, Bytes(bytes), &mut self.out);
            self.pass_on()?;
        }
        self.end_grant(actor);
        let again = self.state.actors[actor].retries_left > 0;
        self.state.actors[actor].at = if again { At::Failed } else { At::Gone };
        self.ends_with_its_parts(actor, Some(stage));
        self.pass_on()?;
        // A part may have been admitted by what the stage returned.
        self.ends_with_its_parts(actor, Some(stage));
        self.forget(actor)
    }

    /// The job's handle is dropped.
    pub(crate) fn forget(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        self.state.ledger.end(id, &mut self.out);
        let known = &mut self.state.actors[actor];
        if known.pieces.is_empty() && known.inherited.is_empty() && known.at != At::Ending {
            known.id = None;
        }
        if let Some(parent) = self.setup.parent(actor) {
            self.wind_up(parent);
        }
        self.pass_on()
    }

    /// Drops every reservation that is out.
    pub(crate) fn drop_all(&mut self, actor: usize) -> Result<(), Broken> {
        for (part, class, bytes) in std::mem::take(&mut self.state.actors[actor].inherited) {
            self.state.ledger.drop_piece(part, class, Bytes(bytes), &mut self.out);
            self.pass_on()?;
        }
        let id = self.state.actors[actor].id;
        if self.state.actors[actor].at != At::Ending {
            (self.state.actors[actor].at, self.state.actors[actor].id) = (At::Gone, None);
        }
        for (class, bytes) in std::mem::take(&mut self.state.actors[actor].pieces) {
            let id = id.expect("who holds something is known");
            self.state.ledger.drop_piece(id, class, Bytes(bytes), &mut self.out);
            self.pass_on()?;
        }
        Ok(())
    }
}

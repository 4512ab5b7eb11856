//! SyncGroup: the leader files assignments, everybody fetches theirs.

use std::collections::HashMap;

use crate::error::GroupError;
use crate::event::GroupEvent;
use crate::group::{Ctx, Group, Phase};
use crate::types::{Blob, Generation, MemberId, Token};

/// A SyncGroup request.
#[derive(Debug, Clone, Copy)]
pub struct SyncRequest<'a> {
    /// Group id.
    pub group: &'a str,
    /// Member id.
    pub member_id: &'a str,
    /// `group.instance.id`; an empty one counts as none.
    pub instance_id: Option<&'a str>,
    /// The generation that the join was answered with.
    pub generation: Generation,
    /// What the client thinks the protocol type is, from version 5 on.
    pub protocol_type: Option<&'a str>,
    /// What the client thinks was chosen, from version 5 on.
    pub protocol: Option<&'a str>,
    /// Assignments by member id; of the leader only.
    pub assignments: &'a [(&'a str, &'a [u8])],
}

impl Group {
    pub(crate) fn sync(&mut self, ctx: &mut Ctx<'_>, token: Token, request: &SyncRequest<'_>) {
        if let Err(error) = self.try_sync(ctx, token, request) {
            ctx.out.sync(token, Err(error));
        }
    }

    fn try_sync(&mut self, ctx: &mut Ctx<'_>, token: Token, request: &SyncRequest<'_>) -> Result<(), GroupError> {
        self.current_member(request.member_id, request.instance_id.filter(|id| !id.is_empty()))?;
        if request.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |asked: Option<&str>, is: &Option<_>| asked.is_some() && asked != is.as_deref();
        if differs(request.protocol_type, &self.protocol_type) || differs(request.protocol, &self.protocol) {
            return Err(GroupError::InconsistentProtocol);
        }
        match self.phase {
            Phase::Empty => Err(GroupError::UnknownMember),
            Phase::Preparing(_) => Err(GroupError::RebalanceInProgress),
            Phase::Completing { sync_until } => {
                let leads = self.is_leader(request.member_id);
                let filed = if leads { self.check_assignments(ctx, request)? } else { HashMap::new() };
                self.park_sync(ctx, token, request.member_id);
                if leads {
                    self.file(ctx, sync_until, &filed);
                }
                Ok(())
            }
            Phase::Stable { .. } => {
                // The leader is done. Asking twice is fine: the first answer may have been lost.
                self.park_sync(ctx, token, request.member_id);
                self.answer_syncs(ctx);
                Ok(())
            }
        }
    }

    fn park_sync(&mut self, ctx: &mut Ctx<'_>, token: Token, member_id: &str) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        member.sync_due = false;
        member.refresh(ctx.now);
        if let Some(before) = member.sync.replace(token) {
            // The client gave up on that request; whoever still reads its answer shall try again.
            ctx.out.sync(before, Err(GroupError::RebalanceInProgress));
        }
    }

    /// Keeps what the leader filed. Whom it left out has an empty assignment, whom it invented is ignored.
    fn file(&mut self, ctx: &mut Ctx<'_>, sync_until: crate::types::Moment, filed: &HashMap<&str, &[u8]>) {
        self.members.assign(|member| match filed.get(&*member.id) {
            Some(blob) => Blob::from(*blob),
            None if crate::mutants::on(crate::mutants::Mutant::StaleAssignments) => member.assignment.clone(),
            None => Blob::from([]),
        });
        self.phase = Phase::Stable { sync_until: Some(sync_until) };
        if let Some(since) = self.rebalancing_since.take() {
            ctx.out.events.push(GroupEvent::RebalanceEnded { millis: ctx.now.since(since) });
        }
        self.answer_syncs(ctx);
    }

    fn answer_syncs(&mut self, ctx: &mut Ctx<'_>) {
        let mut waiting: Vec<(MemberId, Token)> = Vec::new();
        for member in self.members.iter_mut() {
            if let Some(token) = member.sync.take() {
                member.refresh(ctx.now);
                waiting.push((member.id.clone(), token));
            }
        }
        for (id, token) in waiting {
            if let Some(member) = self.members.get(&id) {
                let synced = self.synced(member.assignment.clone());
                ctx.out.sync(token, Ok(synced));
            }
        }
    }

    /// Later entries of one member win, as in a map.
    fn check_assignments<'a>(
        &self,
        ctx: &Ctx<'_>,
        request: &SyncRequest<'a>,
    ) -> Result<HashMap<&'a str, &'a [u8]>, GroupError> {
        let max = ctx.config.assignment_bytes_max;
        if let Some((_, blob)) = request.assignments.iter().find(|(_, blob)| blob.len() > max) {
            return Err(GroupError::AssignmentTooLarge { bytes: blob.len(), max });
        }
        let filed: HashMap<_, _> = request.assignments.iter().copied().collect();
        let bytes = self.members.iter().filter_map(|member| filed.get(&*member.id)).map(|blob| blob.len()).sum();
        // The assignments of the generation before make room for these.
        let max = ctx.room + self.members.assigned();
        if bytes > max { Err(GroupError::AssignmentTooLarge { bytes, max }) } else { Ok(filed) }
    }
}

#[cfg(test)]
mod tests;

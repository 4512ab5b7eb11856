//! Requests arrive at the service.

use super::process::{Process, Request, Write};
use super::world::{GROUP, Open, Reply, Verdict, World};
use crate::offsets::testing::{part, request, topic};
use crate::{
    Answer, CommitPartition, Generation, GroupError, GroupState, JoinRequest, Leaving, Now, Sender, SyncRequest, Token,
};

impl World {
    pub(super) fn arrive(&mut self, process: usize, token: Token, asked: Request, sender: &Process) -> Verdict {
        let now = self.clock();
        let who = Sender {
            group: GROUP,
            member_id: &sender.member_id,
            instance_id: sender.instance.as_deref(),
            generation: sender.generation,
        };
        let mut open = Open { process, sender: sender.clone(), writes: Vec::new() };
        match asked {
            Request::Heartbeat => {
                let result = self.groups.heartbeat(&who, now);
                self.reply(process, token, Reply::Plain(result));
            }
            Request::Leave => {
                let leaving = [Leaving { member_id: &sender.member_id, instance_id: sender.instance.as_deref() }];
                let results = self.groups.leave(GROUP, &leaving, now, &mut self.out).map_err(|e| e.to_string())?;
                self.reply(process, token, Reply::Plain(results[0]));
            }
            Request::Join => {
                self.open.insert(token, open);
                self.checks.opened(token, self.now);
                self.join(token, sender, now);
            }
            Request::Sync { assignments } => {
                self.open.insert(token, open);
                self.checks.opened(token, self.now);
                self.sync(token, sender, &assignments, now)?;
            }
            Request::Commit { writes, outsider } => {
                open.writes.clone_from(&writes);
                self.open.insert(token, open);
                self.checks.opened(token, self.now);
                self.commit(token, if outsider { None } else { Some(who) }, &writes, now)?;
            }
        }
        Ok(())
    }

    fn join(&mut self, token: Token, sender: &Process, now: Now) {
        let protocols: Vec<(&str, &[u8])> = sender.protocols.iter().map(|(n, m)| (n.as_str(), m.as_slice())).collect();
        let fresh = token.0.to_string();
        let join = JoinRequest {
            version: sender.version,
            group: GROUP,
            member_id: &sender.member_id,
            instance_id: sender.instance.as_deref(),
            client_id: &sender.name,
            client_host: "h",
            session_timeout_ms: sender.session_ms,
            rebalance_timeout_ms: (sender.version > 0).then_some(sender.rebalance_ms),
            protocol_type: "consumer",
            protocols: &protocols,
            fresh: &fresh,
        };
        self.groups.join(token, &join, now, &mut self.out);
        let refused = self.out.answers.iter().any(|(t, a)| *t == token && matches!(a, Answer::Join(Err(_))));
        if let Some(instance) = &sender.instance
            && sender.member_id.is_empty()
            && !refused
        {
            self.checks.took_over(instance);
        }
    }

    fn sync(&mut self, token: Token, sender: &Process, filed: &[(String, Vec<u8>)], now: Now) -> Verdict {
        let assignments: Vec<(&str, &[u8])> = filed.iter().map(|(id, blob)| (id.as_str(), blob.as_slice())).collect();
        let sync = SyncRequest {
            group: GROUP,
            member_id: &sender.member_id,
            instance_id: sender.instance.as_deref(),
            generation: sender.generation,
            protocol_type: None,
            protocol: None,
            assignments: &assignments,
        };
        let before = self.groups.coordinator().state(GROUP);
        self.groups.sync(token, &sync, now, &mut self.out);
        let after = self.groups.coordinator().state(GROUP);
        if before == GroupState::CompletingRebalance && after == GroupState::Stable {
            self.checks.filed(sender.generation.0, &sender.member_id, filed)?;
        }
        Ok(())
    }

    fn commit(&mut self, token: Token, member: Option<Sender<'_>>, writes: &[Write], now: Now) -> Verdict {
        let outsider = Sender { group: GROUP, member_id: "", instance_id: None, generation: Generation::NONE };
        let partitions =
            writes.iter().map(|w| CommitPartition { expected: w.expected, ..part(w.partition, w.offset) }).collect();
        let vacant = matches!(self.groups.coordinator().state(GROUP), GroupState::Empty | GroupState::Dead);
        let commit = request(GROUP, vec![topic("t", partitions)]);
        self.groups.commit(token, &member.unwrap_or(outsider), commit, now, &mut self.out);
        let refused = self.out.answers.iter().any(|(t, answer)| {
            let Answer::Commit(results) = answer else { return false };
            *t == token && results.iter().all(|r| r.is_err_and(|e| !matches!(e, GroupError::OffsetMismatch { .. })))
        });
        match member {
            _ if refused => {
                self.checks.stats.refused_commits += 1;
                Ok(())
            }
            Some(member) => self.checks.allowed(member.generation.0, member.member_id),
            None if vacant => Ok(()),
            None => Err("an outsider commits to a group with members".to_owned()),
        }
    }
}

//! Polling messages.

use std::sync::Arc;

use bytes::{BufMut, Bytes};
use iggy_binary_protocol::WireDecode;
use iggy_binary_protocol::consensus::{HEADER_SIZE, Operation};
use iggy_binary_protocol::primitives::consumer::KIND_CONSUMER_GROUP;
use iggy_binary_protocol::requests::messages::PollMessagesRequest;
use milena_store::{Bounds, Entry, PartitionRef, ReadLimit, StoreError, TimeKind};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use super::{Answer, Caller, groups, offsets, view};
use crate::batch::{Room, encode};
use crate::catalog::Found;
use crate::codes::{Code, Refusal};
use crate::config::OffsetRules;
use crate::frame::{Reply, malformed};
use crate::service::Service;
use crate::state::{ConsumerKey, Incarnation};

/// In place of a partition in an empty answer: the assignment of the member is out of date, and it shall ask for it.
const RESYNC: u32 = u32::MAX;

/// Strategies, as the protocol numbers them.
const OFFSET: u8 = 1;
const TIMESTAMP: u8 = 2;
const FIRST: u8 = 3;
const LAST: u8 = 4;
const NEXT: u8 = 5;

/// Bytes read from the store at once.
const READ_BYTES: usize = 1 << 20;

/// Bytes in front of the batches: partition, offset of the last message, number of messages.
const PREFIX_BYTES: usize = 16;

/// What is polled, and for whom.
struct Poll {
    at: PartitionRef,
    of: Found,
    who: ConsumerKey,
    request: PollMessagesRequest,
}

/// Returns messages from where the strategy says on. An offset below the start of the partition is taken for its start, as
/// on the server.
pub(super) async fn poll(service: &Service, caller: &Caller, body: &Bytes) -> Answer {
    let request = PollMessagesRequest::decode_from(body).map_err(malformed)?;
    let is_group = request.consumer.kind == KIND_CONSUMER_GROUP;
    if is_group && service.config.offset_rules == OffsetRules::Server && !is_owner(service, caller, &request).await? {
        // Who names no partition has no assignment that could be out of date.
        return Ok(answer(request.partition_id.map_or(0, |_| RESYNC), 0, 0));
    }
    let partition = request.partition_id.unwrap_or(0);
    let of = service.catalog.topic(&request.stream_id, &request.topic_id).await?;
    let at = of.partition(partition)?;
    let who = offsets::key(service, &of.info.topic, &request.consumer).ok_or(Code::GROUP_NOT_FOUND)?;
    let poll = Poll { at, of, who, request };
    let (reply, last) = read(service, &poll).await?;
    let group = offsets::group_of(service, Incarnation::of(&poll.of.info.topic), &poll.who);
    if let (Some(group), Some(last)) = (group, last) {
        let is_owner = service.members.served(group, caller.client(), partition, last);
        if !is_owner && service.config.offset_rules == OffsetRules::Server {
            // The partition went to another member while it was read, and that one is given the same messages.
            return Ok(answer(RESYNC, 0, 0));
        }
    }
    if let Some(last) = last.filter(|_| poll.request.auto_commit) {
        offsets::write(service, &poll.of.info.topic, partition, poll.who, Some(last)).await?;
    }
    Ok(reply)
}

/// A member polls what is assigned to it and nothing else. Whatever is missing for that looks the same to it.
async fn is_owner(service: &Service, caller: &Caller, request: &PollMessagesRequest) -> Result<bool, Refusal> {
    let Some(found) = service.catalog.topic_if_any(&request.stream_id, &request.topic_id).await? else {
        return Ok(false);
    };
    let of = Incarnation::of(&found.info.topic);
    let (Some(partition), Some((id, _))) = (request.partition_id, groups::find(service, of, &request.consumer.id))
    else {
        return Ok(false);
    };
    Ok(service.members.polls((of, id), caller.client(), partition, Instant::now()))
}

/// The answer, and the offset of its last message.
async fn read(service: &Service, poll: &Poll) -> Result<(Reply, Option<u64>), Refusal> {
    let store = service.catalog.store.as_ref();
    let partition = poll.at.partition;
    let bounds = store.bounds(&poll.at).await.map_err(view::missing_partition)?;
    let mut reply = answer(partition, view::current(bounds), 0);
    let Some(start) = start(service, poll, bounds).await? else {
        return Ok((reply, None));
    };
    // The first piece waits for room, further ones are left out when there is none: a poll that holds some must not wait
    // for another that does. A first piece that needs more than is held gives that back before it waits.
    let Some(mut hold) = wait_for_room(service, 1).await else { return Ok((reply, None)) };
    // Mebibytes that are held for what is read next.
    let mut ahead = 1;
    let bytes = service.config.limits.poll_bytes_max;
    let mut room = Room { messages: poll.request.count, bytes };
    let (mut next, mut last) = (start.max(bounds.start), None);
    'reads: while room.messages > 0 && next < bounds.end {
        // Only what clients can take whole is read at once, and the first message whatever its size.
        let limit = ReadLimit { bytes: READ_BYTES, at_least_one: true };
        let entries = match store.read(&poll.at, next, limit).await {
            Ok(entries) if !entries.is_empty() => entries,
            // Trimmed in between: what is left begins later, and the client asks again.
            Ok(_) | Err(StoreError::OutOfRange { .. }) => break,
            // What was read before is good; the next poll begins at the damage and says so.
            Err(_) if last.is_some() => break,
            Err(error) => return Err(view::missing_partition(error)),
        };
        let missing = mebibytes(service, &entries).saturating_sub(ahead);
        match Arc::clone(&service.polls).try_acquire_many_owned(missing) {
            Ok(more) => hold.merge(more),
            Err(_) if last.is_some() => break,
            Err(_) => {
                ahead += missing;
                drop((entries, hold));
                hold = match wait_for_room(service, ahead).await {
                    Some(hold) => hold,
                    None => return Ok((reply, None)),
                };
                continue;
            }
        }
        ahead = 0;
        for entry in &entries {
            let before = reply.body_len();
            let written = encode(reply.body(), partition, entry, next, room, last.is_none());
            if written.messages > 0 {
                last = Some(written.last_offset);
                next = written.last_offset + 1;
            }
            let bytes = room.bytes.saturating_sub(reply.body_len() - before);
            room = Room { messages: room.messages - written.messages, bytes };
            if written.full {
                break 'reads;
            }
            next = next.max(entry.base_offset + u64::from(entry.count));
        }
    }
    reply.hold = Some(hold);
    let count = poll.request.count - room.messages;
    service.metrics.messages_out.add(u64::from(count));
    put_count(&mut reply, count);
    Ok((reply, last))
}

/// Where to begin; `None` when there is nothing to return.
async fn start(service: &Service, poll: &Poll, bounds: Bounds) -> Result<Option<u64>, Refusal> {
    let strategy = &poll.request.strategy;
    if poll.request.count == 0 || bounds.start == bounds.end {
        return Ok(None);
    }
    let start = match strategy.kind {
        OFFSET => strategy.value,
        FIRST => bounds.start,
        LAST => bounds.end.saturating_sub(u64::from(poll.request.count)),
        NEXT => offsets::stored(service, &poll.of.info.topic, poll.at.partition, &poll.who)
            .map_or(bounds.start, |offset| offset.saturating_add(1)),
        TIMESTAMP => {
            let found = service.catalog.store.find(&poll.at, bounds.start, strategy.value, TimeKind::Append).await?;
            return Ok(found.map(|found| found.offset));
        }
        _ => return Err(Refusal::Denied(Code::INVALID_COMMAND)),
    };
    Ok((start < bounds.end).then_some(start))
}

/// Waits until there is room for that many mebibytes; `None` when others keep it for too long.
async fn wait_for_room(service: &Service, mebibytes: u32) -> Option<OwnedSemaphorePermit> {
    let room = Arc::clone(&service.polls).acquire_many_owned(mebibytes);
    timeout(service.config.limits.poll_wait, room).await.ok()?.ok()
}

/// Room that entries take, rounded up; never more than there is in all.
fn mebibytes(service: &Service, entries: &[Entry]) -> u32 {
    let bytes: usize = entries.iter().map(|entry| entry.frames.len()).sum();
    let most = service.config.limits.polls_mib_max.max(1);
    u32::try_from(bytes.div_ceil(1 << 20).clamp(1, most)).unwrap_or(u32::MAX)
}

fn answer(partition: u32, current_offset: u64, count: u32) -> Reply {
    let mut reply = Reply::new(Operation::NonReplicated, PREFIX_BYTES);
    let body = reply.body();
    body.put_u32_le(partition);
    body.put_u64_le(current_offset);
    body.put_u32_le(count);
    reply
}

fn put_count(reply: &mut Reply, count: u32) {
    let at = HEADER_SIZE + PREFIX_BYTES - 4;
    if let Some(place) = reply.body().get_mut(at..at + 4) {
        place.copy_from_slice(&count.to_le_bytes());
    }
}

//! From the device to memory.

use alloc::sync::Arc;
use alloc::vec::Vec;

use betree_platform::BLOCK_BYTES;
use betree_platform::sync::atomic::Ordering;
use betree_platform::sync::{Condvar, Mutex};
use hashbrown::HashSet;

use super::spans::{SPARE_BYTES_MAX, Span};
use super::{HAS_ROOM, NodePlace, Store};
use crate::cache::{OnDevice, Piece, Residency};
use crate::error::{Error, Result};
use crate::format::node::{Entries, Header, ORIGIN_BYTES, Origin, RunRef};
use crate::invariant::internal;
use crate::io::AlignedBuf;
use crate::key::Cut;
use crate::node::{Basement, Body, Edge, Node};
use crate::node_id::NodeId;
use crate::run::{Layers, Run};
use crate::space::Extent;

/// A node of at most this size is read whole with its header.
const SMALL_NODE_BYTES: u64 = 32 << 10;

const READ_IS_THERE: &str = "bytes that were read are in memory";

/// The nodes that a thread is reading whole, so that no other thread reads them too.
#[derive(Default)]
pub(crate) struct Reading {
    nodes: Mutex<HashSet<NodeId>>,
    done: Condvar,
    /// The memory of the last reads.
    pub(super) spare: Mutex<Vec<AlignedBuf>>,
}

/// How much of a node is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadScope {
    /// Its header; everything if the node is small.
    Header,
    /// Everything, unless it is larger than any usual node.
    Whole,
}

/// What was read together, each part with its own error.
pub(crate) struct Together {
    pub layers: Vec<Result<Layers>>,
    pub nodes: Vec<Result<Arc<Node>>>,
}

/// The length of a node's extent in bytes.
fn extent_bytes(place: &NodePlace) -> u64 {
    place.extent.len_blocks() * BLOCK_BYTES as u64
}

/// Whether a node is read whole with its header.
fn is_small(place: &NodePlace) -> bool {
    extent_bytes(place) <= SMALL_NODE_BYTES
}

impl Store {
    /// As [`load`](Store::load), for pieces of one node that other threads may want at the same time: later
    /// ones wait, and find the pieces in memory.
    pub fn load_together(&self, node: NodeId, pieces: &[Arc<Piece>]) -> Result<()> {
        loop {
            match self.read_alone(node, || self.load(pieces)) {
                Some(loaded) => return loaded,
                None => self.wait_for_reader(node),
            };
        }
    }

    /// Calls `read`, unless another thread is reading the node whole; then `None`.
    pub fn read_alone<T>(&self, node: NodeId, read: impl FnOnce() -> T) -> Option<T> {
        if !self.reading.nodes.lock().insert(node) {
            return None;
        }
        let done = read();
        self.reading.nodes.lock().remove(&node);
        self.reading.done.notify_all();
        Some(done)
    }

    /// Whether a thread is reading a node whole.
    pub fn is_being_read(&self, node: NodeId) -> bool {
        self.reading.nodes.lock().contains(&node)
    }

    /// Waits while a thread reads a node whole; the caller need not read it again. `false` if no thread was
    /// reading it.
    pub fn wait_for_reader(&self, node: NodeId) -> bool {
        let mut nodes = self.reading.nodes.lock();
        let was_read = nodes.contains(&node);
        while nodes.contains(&node) {
            nodes = self.reading.done.wait(nodes);
        }
        was_read
    }

    /// The contents of a piece as one run, from memory or from the device.
    pub fn run(&self, piece: &Arc<Piece>) -> Result<Arc<Run>> {
        self.runs(core::slice::from_ref(piece))?.pop().ok_or_else(|| internal!(READ_IS_THERE))
    }

    /// The contents of a piece, from memory or from the device. Lookups do not need them in one run.
    pub fn layers(&self, piece: &Arc<Piece>) -> Result<Layers> {
        match piece.layers() {
            Some(layers) => Ok(layers),
            None => {
                self.all_layers(core::slice::from_ref(piece))?.pop().ok_or_else(|| internal!(READ_IS_THERE))
            }
        }
    }

    /// The newest layers of a piece, without the first that cannot be read and those below it, and the error
    /// of that one: what they say of a key counts, whatever was below. All of it without an error.
    pub fn newest_layers(&self, piece: &Arc<Piece>) -> (Option<Layers>, Option<Error>) {
        let error = match self.layers(piece) {
            Ok(layers) => return (Some(layers), None),
            Err(error) => error,
        };
        let (stored, newer) = match piece.residency() {
            Ok(Residency::OnDevice { at, newer, .. }) => (at, newer),
            // Another reader has read it since.
            Ok(Residency::Memory(layers)) => return (Some(layers), None),
            Err(error) => return (None, Some(error)),
        };
        let mut runs = Vec::from_iter(newer);
        for run in stored.runs.iter().rev() {
            match self.read_run(&stored.extent, *run) {
                Ok(run) => runs.push(run),
                Err(_) => break,
            }
        }
        runs.reverse();
        (Layers::of(&runs), Some(error))
    }

    /// Brings pieces into memory with as few reads as their places allow.
    pub fn load(&self, pieces: &[Arc<Piece>]) -> Result<()> {
        self.all_layers(pieces).map(|_| ())
    }

    /// The contents of pieces, in their order, each as one run. The returned references keep them in memory:
    /// the cache may evict pieces before this returns.
    pub fn runs(&self, pieces: &[Arc<Piece>]) -> Result<Vec<Arc<Run>>> {
        let all = self.all_layers(pieces)?;
        Ok(pieces.iter().zip(&all).map(|(piece, layers)| piece.join(layers)).collect())
    }

    /// As [`layers`](Store::layers), of several pieces, which are read together.
    pub fn all_layers(&self, pieces: &[Arc<Piece>]) -> Result<Vec<Layers>> {
        self.read_together(pieces, &[])?.layers.into_iter().collect()
    }

    /// The contents of pieces, from memory or from the device, and the nodes at some places, in the order of
    /// these, each with its own error. All that has to be read is asked of the device together, with as few
    /// reads as the places allow. A small node comes with its pieces in memory.
    ///
    /// # Errors
    /// [`Error::NoMemory`], [`Error::Internal`].
    pub fn read_together(&self, pieces: &[Arc<Piece>], nodes: &[(NodeId, &NodePlace)]) -> Result<Together> {
        let all = pieces.iter().map(Piece::residency).collect::<Result<Vec<_>>>()?;
        let mut spans = Vec::new();
        for residency in &all {
            if let Residency::OnDevice { at, .. } = residency {
                spans.extend(at.runs.iter().map(|run| Span::of_run(&at.extent, run)));
            }
        }
        let checked: Vec<_> = nodes.iter().map(|(_, place)| self.refuse_too_long(place)).collect();
        for ((_, place), _) in nodes.iter().zip(&checked).filter(|(_, checked)| checked.is_ok()) {
            let len = if is_small(place) { extent_bytes(place) } else { place.header_len.into() };
            spans.push(Span { extent: &place.extent, offset: 0, len });
        }
        let mut bytes = self.read_spans(&spans)?.into_iter();
        let mut layers = Vec::with_capacity(pieces.len());
        for residency in &all {
            layers.push(match residency {
                Residency::Memory(whole) => Ok(whole.clone()),
                Residency::OnDevice { piece, at, newer } => {
                    let runs: Vec<_> = bytes.by_ref().take(at.runs.len()).collect();
                    self.fill(piece, at, runs).map(|older| older.under(newer.clone()))
                }
            });
        }
        let mut found = Vec::with_capacity(nodes.len());
        for ((id, place), checked) in nodes.iter().zip(checked) {
            let node = checked.and_then(|()| bytes.next().ok_or_else(|| internal!(READ_IS_THERE))?);
            let node = node.and_then(|bytes| self.node_in(&bytes, *id, place, None));
            found.push(
                node.or_else(|error| self.node_of(self.header_of_copy(*id, place, None, error)?, place)),
            );
        }
        self.cache.evict();
        Ok(Together { layers, nodes: found })
    }

    /// Keeps the contents of a piece in memory whose runs were read.
    fn fill(&self, piece: &Arc<Piece>, at: &OnDevice, runs: Vec<Result<Vec<u8>>>) -> Result<Layers> {
        let (layers, is_new) = piece.fill(self.contents(at, runs.into_iter())?)?;
        if is_new {
            self.cache.watch(piece);
        }
        Ok(layers)
    }

    /// The errors of the runs of a piece that cannot be read as they are stored, in no copy of their node.
    pub fn bad_runs(&self, piece: &Piece) -> Vec<Error> {
        let Some(OnDevice { extent, runs }) = piece.stored() else { return Vec::new() };
        runs.into_iter().filter_map(|run| self.read_run(&extent, run).err()).collect()
    }

    /// Reads a run of an extent without keeping it in the cache.
    pub fn read_run(&self, extent: &Arc<Extent>, run: RunRef) -> Result<Arc<Run>> {
        let stored = OnDevice { extent: extent.clone(), runs: alloc::vec![run] };
        let bytes = self.read_stored(core::slice::from_ref(&stored))?;
        Ok(self.contents(&stored, bytes.into_iter())?.newest().clone())
    }

    /// The stored bytes of each run of pieces, in the order given, as their node's first copy has them.
    pub(super) fn read_stored(&self, pieces: &[OnDevice]) -> Result<Vec<Result<Vec<u8>>>> {
        let runs =
            pieces.iter().flat_map(|stored| stored.runs.iter().map(|run| Span::of_run(&stored.extent, run)));
        self.read_spans(&runs.collect::<Vec<_>>())
    }

    /// Reads a node's header, or more by `scope`. If `dict` is given, the node must be of that dictionary.
    /// What is bad in its first copy comes from the second, if it has one.
    pub fn read_node(
        &self,
        id: NodeId,
        place: &NodePlace,
        scope: ReadScope,
        dict: Option<u8>,
    ) -> Result<Arc<Node>> {
        let first = self.read_first(id, place, scope, dict);
        first.or_else(|error| self.node_of(self.header_of_copy(id, place, dict, error)?, place))
    }

    fn read_first(
        &self,
        id: NodeId,
        place: &NodePlace,
        scope: ReadScope,
        dict: Option<u8>,
    ) -> Result<Arc<Node>> {
        self.refuse_too_long(place)?;
        let is_small = match scope {
            ReadScope::Header => is_small(place),
            ReadScope::Whole => extent_bytes(place) <= SPARE_BYTES_MAX as u64,
        };
        let header_blocks = (place.header_len as usize).div_ceil(BLOCK_BYTES);
        let blocks = if is_small { place.extent.len_blocks() as usize } else { header_blocks };
        let mut buffer = match scope {
            ReadScope::Header => AlignedBuf::zeroed(blocks)?,
            ReadScope::Whole => self.buffer_of(blocks)?,
        };
        let mut read = |blocks: usize| {
            let room = buffer.as_mut_slice().get_mut(..blocks * BLOCK_BYTES);
            self.disk.read_extent(&place.extent, 0, room.ok_or_else(|| internal!(HAS_ROOM))?)
        };
        let mut has_pieces = is_small;
        if let Err(error) = read(blocks) {
            if blocks == header_blocks {
                return Err(error);
            }
            // An unreadable piece must not hide the header.
            has_pieces = false;
            read(header_blocks)?;
        }
        let read_bytes = if has_pieces { extent_bytes(place) } else { place.header_len.into() };
        let bytes = buffer.as_slice().get(..read_bytes as usize);
        let node = self.node_in(bytes.ok_or_else(|| internal!(READ_IS_THERE))?, id, place, dict)?;
        self.cache.evict();
        if scope == ReadScope::Whole {
            self.give_back(buffer);
        }
        Ok(node)
    }

    /// The node whose header `bytes` begin with; its pieces are in memory if `bytes` are its whole extent.
    fn node_in(&self, bytes: &[u8], id: NodeId, place: &NodePlace, dict: Option<u8>) -> Result<Arc<Node>> {
        let header = self.header_in(bytes, id, place, dict)?;
        let node = self.node_of(header, place)?;
        if (bytes.len() as u64) < extent_bytes(place) {
            return Ok(node);
        }
        for piece in node.pieces() {
            let stored = piece.stored().ok_or_else(|| internal!("a node's pieces are on the device"))?;
            let runs = stored.runs.iter().map(|run| {
                let at = run.offset as usize;
                // The header's decoding has looked at it.
                let bytes = bytes.get(at..at + run.stored_len as usize);
                bytes.map(<[u8]>::to_vec).ok_or_else(|| internal!("a run lies in its extent"))
            });
            // A bad piece is not filled in: its readers get the error.
            let _ = self.fill(&piece, &stored, runs.collect());
        }
        Ok(node)
    }

    /// Reads and verifies a node's header alone, from the second copy if the first is bad.
    pub fn read_header(&self, id: NodeId, place: &NodePlace, dict: Option<u8>) -> Result<Header> {
        let first = self.read_first_header(id, place, dict);
        first.or_else(|error| self.header_of_copy(id, place, dict, error))
    }

    /// Reads and verifies a node's header alone, of one copy.
    pub(super) fn read_first_header(
        &self,
        id: NodeId,
        place: &NodePlace,
        dict: Option<u8>,
    ) -> Result<Header> {
        self.refuse_too_long(place)?;
        let mut buffer = AlignedBuf::zeroed((place.header_len as usize).div_ceil(BLOCK_BYTES))?;
        self.disk.read_extent(&place.extent, 0, buffer.as_mut_slice())?;
        self.header_in(buffer.as_slice(), id, place, dict)
    }

    pub(super) fn refuse_too_long(&self, place: &NodePlace) -> Result<()> {
        if u64::from(place.header_len) > place.extent.len_blocks() * BLOCK_BYTES as u64 {
            return Err(place.corrupt("it is longer than its extent"));
        }
        if u64::from(place.header_len) > self.limits.header_bytes {
            return Err(place.corrupt("it is longer than this volume allows"));
        }
        Ok(())
    }

    /// Decodes and verifies the header at the start of a node's bytes. Damage is counted.
    pub(super) fn header_in(
        &self,
        bytes: &[u8],
        id: NodeId,
        place: &NodePlace,
        dict: Option<u8>,
    ) -> Result<Header> {
        self.disk.health.count_damage(self.header_uncounted(bytes, id, place, dict))
    }

    fn header_uncounted(
        &self,
        bytes: &[u8],
        id: NodeId,
        place: &NodePlace,
        dict: Option<u8>,
    ) -> Result<Header> {
        let corrupt = |why: &str| place.corrupt(why);
        let extent_bytes = place.extent.len_blocks() * BLOCK_BYTES as u64;
        let bytes = bytes.get(..place.header_len as usize);
        let bytes = bytes.ok_or_else(|| internal!(READ_IS_THERE))?;
        if Header::checksum(bytes) != Some(place.header_checksum) {
            return Err(corrupt("the checksum does not match"));
        }
        let next_msn = self.next_msn.load(Ordering::Relaxed);
        let header = Header::decode(bytes, extent_bytes, &self.limits, next_msn)
            .map_err(|bad| bad.into_error(place.extent.place(0), corrupt))?;
        if header.id != id {
            return Err(corrupt(&alloc::format!("node {} stands where node {id} should", header.id)));
        }
        let Origin { volume_id, dict: of_dict, checkpoint } = header.origin;
        if volume_id != self.volume_id {
            return Err(corrupt("it is of another volume"));
        }
        // The superblock of generation 0 of a new volume names nodes of generation 1.
        if checkpoint > self.generation.load(Ordering::Relaxed).max(1) {
            return Err(corrupt("it is of a later checkpoint than the volume's"));
        }
        if u64::from(header.extent_blocks) != place.extent.len_blocks() {
            return Err(corrupt("its extent is not as long as it says"));
        }
        if let Some(dict) = dict.filter(|dict| *dict != of_dict) {
            return Err(corrupt(&alloc::format!(
                "it is of dictionary {of_dict}, and stands in dictionary {dict}"
            )));
        }
        Ok(header)
    }

    /// Makes a node in memory from its header; its pieces stay on the device.
    pub fn node_of(&self, header: Header, place: &NodePlace) -> Result<Arc<Node>> {
        let piece = |runs| Piece::on_device(&self.cache, OnDevice { extent: place.extent.clone(), runs });
        let body = match header.entries {
            Entries::Leaf(basements) => Body::Leaf(
                basements.into_iter().map(|(first, runs)| Basement { first, piece: piece(runs) }).collect(),
            ),
            Entries::Interior(stored) => {
                let mut lo: Cut = header.lo.clone();
                let mut edges = Vec::with_capacity(stored.len());
                for edge in stored {
                    edges.push(Edge {
                        lo: core::mem::replace(&mut lo, edge.hi.clone()),
                        hi: edge.hi,
                        translation: edge.translation,
                        child: edge.child,
                        longest_key: edge.longest_key,
                        partition: (!edge.partition.is_empty()).then(|| piece(edge.partition)),
                        gotos: edge.gotos,
                    });
                }
                Body::Interior(edges)
            }
        };
        let kept_bytes = (place.header_len as usize).checked_sub(ORIGIN_BYTES);
        let kept_bytes = kept_bytes.ok_or_else(|| internal!("a decoded header has an origin"))?;
        let charge = self.cache.charge(kept_bytes * 2, body.content_bytes(), body.gotos());
        let Header { id, height, lo, hi, .. } = header;
        Ok(Arc::new(Node { id, height, lo, hi, body, charge }))
    }
}

#[cfg(test)]
#[cfg(feature = "shuttle")]
mod schedules {
    use alloc::borrow::Cow;

    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    use shuttle::{Config, Runner, thread};

    use super::*;
    use crate::batch::Batch;
    use crate::env::Env;
    use crate::io::mem::MemDevice;
    use crate::message::{Kind, PairCompression, Point};
    use crate::settings::{DictId, Geometry, Options};
    use crate::upsert::Replace;

    const D: DictId = DictId(0);
    const GEOMETRY: Geometry =
        Geometry { node_bytes: 4096, basement_bytes: 1024, fanout_max: 4, log_bytes: 64 << 10, dicts: 1 };

    /// A piece of two messages: the older one is on the device alone, the newer one in memory alone.
    fn piece_over_stored(env: &Env) -> Arc<Piece> {
        let mut batch = Batch::new();
        batch.put(D, b"older", b"");
        env.commit(&batch).unwrap();
        env.checkpoint().unwrap();
        let tree = env.engine.tree(D).unwrap();
        let root = tree.dict.state.read().root;
        let root = tree.node(root).unwrap();
        let below = root.edges()[0].partition.clone().unwrap();
        assert!(below.evict());
        let newer = Point {
            key: Cow::Borrowed(b"newer"),
            msn: 9,
            kind: Kind::Put(PairCompression::Usual),
            value: b"",
        };
        Piece::over(&env.engine.store.cache, &below, &[newer], &[]).unwrap()
    }

    fn a_reader_beside_another() {
        let device = MemDevice::new(256);
        Env::format(device.clone(), &GEOMETRY, [1; 16]).unwrap();
        let env = Arc::new(Env::open(device, Options::new(1 << 20, Arc::new(Replace))).unwrap());
        let piece = piece_over_stored(&env);
        let reader = {
            let (env, piece) = (env.clone(), piece.clone());
            thread::spawn(move || env.engine.store.layers(&piece).unwrap().joined().len())
        };
        assert_eq!(env.engine.store.run(&piece).unwrap().len(), 2);
        assert_eq!(reader.join().unwrap(), 2);
    }

    #[test]
    fn a_piece_is_read_while_another_thread_joins_it() {
        // Tasks with stacks for an opening, whose superblocks are large.
        let mut config = Config::new();
        config.stack_size = 256 << 10;
        Runner::new(RandomScheduler::new(1000), config.clone()).run(a_reader_beside_another);
        Runner::new(PctScheduler::new(3, 1000), config).run(a_reader_beside_another);
    }
}

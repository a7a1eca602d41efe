//! Cycles of dependencies.

use std::fmt::Write;

use petgraph::algo::{astar, tarjan_scc};
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::{EdgeFiltered, EdgeRef};

use super::{Anomaly, End, Finding, Key, Recorded};

/// Why one transaction comes before another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// The other wrote over what it wrote (ww).
    WriteOverWrite,
    /// The other read what it wrote (wr).
    ReadOfWrite,
    /// The other wrote over what it read (rw).
    OverItem,
    /// The other wrote a key that its scan found absent (rw, by a predicate).
    OverAbsent,
    /// It was over before the other began.
    RealTime,
}

impl Kind {
    fn is_over_read(self) -> bool {
        matches!(self, Kind::OverItem | Kind::OverAbsent)
    }
}

/// A dependency of one transaction on another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dependency {
    pub kind: Kind,
    /// The key by which it is.
    pub key: Option<Key>,
}

type Graph = DiGraph<(), Dependency>;

/// The strongest cycle of the committed transactions.
pub(super) fn strongest(
    history: &[Recorded],
    dependencies: &[(usize, usize, Dependency)],
) -> Option<Finding> {
    let mut graph = Graph::new();
    history.iter().for_each(|_| {
        graph.add_node(());
    });
    for (from, to, dependency) in dependencies {
        graph.add_edge(NodeIndex::new(*from), NodeIndex::new(*to), *dependency);
    }
    add_real_time(&mut graph, history);
    // Mostly there is none.
    cycle(&graph, |_| true)?;
    type Search = fn(&Graph, bool) -> Option<(Anomaly, Vec<NodeIndex>)>;
    let searches: [Search; 2] = [of_snapshots, of_any];
    let tried = searches.iter().flat_map(|search| [false, true].map(|is_real_time| (search, is_real_time)));
    tried.into_iter().find_map(|(search, is_real_time)| {
        let (anomaly, nodes) = search(&graph, is_real_time)?;
        Some(Finding { anomaly, is_real_time, what: told(&graph, &nodes, anomaly, is_real_time) })
    })
}

/// Each transaction comes before those that began after its end, but for those which another is between.
fn add_real_time(graph: &mut Graph, history: &[Recorded]) {
    let committed = || history.iter().enumerate().filter(|(_, one)| one.end == End::Committed);
    for (from, one) in committed() {
        let later = || committed().filter(|(_, other)| other.invoked > one.returned);
        let first_end = later().map(|(_, other)| other.returned).min().unwrap_or(u64::MAX);
        for (to, _) in later().filter(|(_, other)| other.invoked < first_end) {
            let dependency = Dependency { kind: Kind::RealTime, key: None };
            graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), dependency);
        }
    }
}

/// The cycles that snapshot isolation forbids: they have no two writes over reads one behind the other
/// (Fekete and others, "Making Snapshot Isolation Serializable", TODS 2005).
fn of_snapshots(graph: &Graph, is_real_time: bool) -> Option<(Anomaly, Vec<NodeIndex>)> {
    let is_in_time = |kind| is_real_time && kind == Kind::RealTime;
    if let Some(nodes) = cycle(graph, |kind| kind == Kind::WriteOverWrite || is_in_time(kind)) {
        return Some((Anomaly::G0, nodes));
    }
    let is_before = |kind: Kind| !kind.is_over_read() && (kind != Kind::RealTime || is_real_time);
    if let Some(nodes) = cycle(graph, is_before) {
        return Some((Anomaly::G1c, nodes));
    }
    let nonadjacent = nonadjacent(graph, is_before)?;
    let over_reads = graph.edge_references().filter(|edge| edge.weight().kind.is_over_read());
    let single = over_reads.into_iter().find_map(|edge| way(graph, edge.target(), edge.source(), is_before));
    Some(single.map_or((Anomaly::GNonadjacent, nonadjacent), |nodes| (Anomaly::GSingle, nodes)))
}

fn of_any(graph: &Graph, is_real_time: bool) -> Option<(Anomaly, Vec<NodeIndex>)> {
    let is_in = |kind| kind != Kind::RealTime || is_real_time;
    let item = cycle(graph, |kind| kind != Kind::OverAbsent && is_in(kind));
    let item = item.map(|nodes| (Anomaly::G2Item, nodes));
    item.or_else(|| Some((Anomaly::G2, cycle(graph, is_in)?)))
}

/// The nodes of a cycle of some kinds of dependencies.
fn cycle(graph: &Graph, is_in: impl Fn(Kind) -> bool) -> Option<Vec<NodeIndex>> {
    let part = EdgeFiltered::from_fn(graph, |edge| is_in(edge.weight().kind));
    let connected = tarjan_scc(&part).into_iter().find(|nodes| nodes.len() > 1)?;
    let first = *connected.first()?;
    let next = graph.edges(first).filter(|edge| is_in(edge.weight().kind)).map(|edge| edge.target());
    let ways =
        next.filter(|next| connected.contains(next)).filter_map(|next| way(graph, next, first, &is_in));
    ways.min_by_key(Vec::len)
}

/// The shortest way from a node to another.
fn way(
    graph: &Graph,
    from: NodeIndex,
    to: NodeIndex,
    is_in: impl Fn(Kind) -> bool,
) -> Option<Vec<NodeIndex>> {
    let part = EdgeFiltered::from_fn(graph, |edge| is_in(edge.weight().kind));
    Some(astar(&part, from, |node| node == to, |_| 1_usize, |_| 0)?.1)
}

/// The nodes of a cycle in which no write over a read comes right behind another. Each transaction is two
/// nodes: reached by a write over a read, from which no other such goes on, and reached otherwise.
fn nonadjacent(graph: &Graph, is_before: impl Fn(Kind) -> bool) -> Option<Vec<NodeIndex>> {
    let mut twice = Graph::new();
    let nodes = graph.node_count();
    (0..2 * nodes).for_each(|_| {
        twice.add_node(());
    });
    for edge in graph.edge_references() {
        let (from, to) = (edge.source(), edge.target());
        let behind_read = |node: NodeIndex| NodeIndex::new(node.index() + nodes);
        if edge.weight().kind.is_over_read() {
            twice.add_edge(from, behind_read(to), *edge.weight());
        } else if is_before(edge.weight().kind) {
            twice.add_edge(from, to, *edge.weight());
            twice.add_edge(behind_read(from), to, *edge.weight());
        }
    }
    let found = cycle(&twice, |_| true)?;
    Some(found.into_iter().map(|node| NodeIndex::new(node.index() % nodes)).collect())
}

/// A cycle in words.
fn told(graph: &Graph, nodes: &[NodeIndex], anomaly: Anomaly, is_real_time: bool) -> String {
    let mut told = String::new();
    let ends = nodes.iter().zip(nodes.iter().cycle().skip(1));
    for (from, to) in ends {
        let between = graph.edges_connecting(*from, *to).map(|edge| *edge.weight());
        let is_in = |kind| match kind {
            Kind::RealTime => is_real_time,
            Kind::OverAbsent => anomaly != Anomaly::G2Item,
            _ => true,
        };
        let Some(dependency) = between.filter(|it| is_in(it.kind)).min_by_key(|it| it.kind) else { continue };
        let key = dependency.key.map_or_else(String::new, |key| format!(" of key {key}"));
        // Writing to a string cannot fail.
        let _ = write!(told, "T{} -{:?}{key}-> ", from.index(), dependency.kind);
    }
    told + &nodes.first().map_or_else(String::new, |first| format!("T{}", first.index()))
}

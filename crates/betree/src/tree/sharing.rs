//! Whether others share what a tree shows.

use super::{Tree, dangling, nowhere};
use crate::error::Result;
use crate::key::{Cut, Translation};
use crate::node::Body;

/// Keys with one answer.
pub(crate) struct Sharing {
    /// Where they end, at most at a leaf's end.
    pub hi: Cut,
    /// Whether any node on their way is named more than once.
    pub is_shared: bool,
}

impl Tree<'_> {
    /// Whether anybody else shares what the tree shows behind a cut. Reads headers of interior nodes alone.
    /// The versions of the moment at hand must be fixed.
    ///
    /// # Errors
    /// Those of reading.
    pub fn sharing_at(&self, at: &Cut) -> Result<Sharing> {
        let (mut id, mut place, mut up) = (self.root()?, at.clone(), Translation::default());
        let mut hi = Cut::HIGH;
        let is_shared = loop {
            let (node, _) = self.version_at(id)?.ok_or_else(|| dangling(id))?;
            let Body::Interior(edges) = &node.body else { break false };
            let edge = edges.iter().find(|edge| edge.hi > place).ok_or_else(nowhere)?;
            hi = hi.min(edge.hi.clone());
            let goto = edge.gotos.iter().find(|goto| goto.hi > place);
            let (child, step, bound) = match goto {
                Some(goto) if goto.lo <= place => {
                    hi = hi.min(goto.hi.clone());
                    (Some(goto.target), &goto.translation, &goto.lo)
                }
                behind => {
                    hi = behind.map_or(hi.clone(), |goto| hi.min(goto.lo.clone()));
                    (edge.child, &edge.translation, &edge.lo)
                }
            };
            let Some(child) = child else { break false };
            if self.references_at(child) > 1 {
                break true;
            }
            if node.height == 1 {
                break false;
            }
            up = step.inverse(bound.bytes()).then(&up);
            (place, hi, id) = (step.cut(&place), step.cut(&hi), child);
        };
        let hi = up.cut(&hi);
        if hi <= *at { Err(nowhere()) } else { Ok(Sharing { hi, is_shared }) }
    }
}

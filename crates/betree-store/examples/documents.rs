//! Documents with an index by author, which transactions keep; a view lists both as they belong together.
//!
//!     cargo run -p betree-store --example documents -- /tmp/documents.betree

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::thread;

use betree_store::{Dict, Isolation, Store};

const THREADS: u32 = 4;
const TURNS: u32 = 100;
const AUTHORS: [&str; 3] = ["ada", "alan", "grace"];

/// A store of documents: "AUTHOR\nTEXT" by title, and an entry "AUTHOR/TITLE" for each.
struct Documents {
    store: Store,
    by_title: Dict,
    by_author: Dict,
}

fn author_of(document: &[u8]) -> &[u8] {
    document.split(|byte| *byte == b'\n').next().unwrap_or_default()
}

impl Documents {
    fn open(path: &Path) -> betree_store::Result<Documents> {
        let store = Store::open(path)?;
        Ok(Documents { by_title: store.dict("by title")?, by_author: store.dict("by author")?, store })
    }

    /// Writes a document in the place of the one that had the title.
    fn write(&self, title: &str, author: &str, text: &str) -> betree_store::Result<()> {
        self.store.run(Isolation::Serializable, |transaction| {
            if let Some(old) = transaction.get(&self.by_title, title)? {
                let entry = [author_of(&old), b"/", title.as_bytes()].concat();
                transaction.delete(&self.by_author, entry)?;
            }
            transaction.put(&self.by_title, title, format!("{author}\n{text}"))?;
            transaction.put(&self.by_author, format!("{author}/{title}"), "")
        })
    }

    /// How many documents there are, and how many of them the index leads to.
    fn count(&self) -> betree_store::Result<(usize, usize)> {
        let view = self.store.view();
        let (by_title, by_author) = (view.dict("by title")?, view.dict("by author")?);
        let mut found = 0;
        for entry in by_author.iter() {
            let (entry, _) = entry?;
            let Some(slash) = entry.iter().position(|byte| *byte == b'/') else { continue };
            let (author, title) = (entry.get(..slash), entry.get(slash + 1..).unwrap_or_default());
            let document = by_title.get(title)?;
            found += usize::from(document.as_deref().map(author_of) == author);
        }
        Ok((by_title.iter().count(), found))
    }
}

/// Does it all on a new store at `path`, and reports to `out`.
pub fn run(path: &Path, out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let documents = Documents::open(path)?;
    let mut differences = 0;
    thread::scope(|scope| {
        let write = |thread: u32| {
            let documents = &documents;
            move || {
                (0..TURNS).try_for_each(|turn| {
                    let author = AUTHORS.get((thread + turn) as usize % AUTHORS.len()).unwrap_or(&"nobody");
                    documents.write(&format!("title {}", turn % 20), author, "...")
                })
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(write(thread))).collect();
        // Readers meet no document without its entry, and no entry without its document.
        for _ in 0..50 {
            let (all, indexed) = documents.count()?;
            differences += usize::from(all != indexed);
        }
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let (all, indexed) = documents.count()?;
    writeln!(out, "documents: {all}, by author: {indexed}")?;
    writeln!(out, "views in which they differed: {differences}")?;
    documents.store.close()?;
    Ok(())
}

/// Takes the path of a file that does not exist yet.
#[cfg(not(test))]
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("which file? It is made.")?;
    run(path.as_ref(), &mut std::io::stdout())
}

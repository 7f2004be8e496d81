//! The code of the server as the compiler sees it: the modules reachable from `lib.rs` that are not
//! only for tests, and the paths that each of them uses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use proc_macro2::{TokenStream, TokenTree};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, Token, UseTree};

use crate::root;

/// A module with a file of its own.
pub(crate) struct Module {
    /// Its path in its package, such as `engine/trade`; empty for a root.
    pub(crate) name: String,
    pub(crate) file: String,
    /// The paths it uses, such as `["tokio", "spawn"]` or `["crate", "engine", "State"]`.
    pub(crate) named: BTreeSet<Vec<String>>,
}

/// A package of the server: its folder, and the module that its root is to the server. The modules
/// of all packages share one set of names.
struct Package {
    folder: &'static str,
    root: &'static [&'static str],
}

const PACKAGES: [Package; 8] = [
    Package { folder: "src", root: &[] },
    Package { folder: "src/clob", root: &["clob"] },
    Package { folder: "src/cluster", root: &["cluster"] },
    Package { folder: "src/core", root: &[] },
    Package { folder: "src/edge", root: &[] },
    Package { folder: "src/exchange", root: &[] },
    Package { folder: "src/store", root: &[] },
    Package { folder: "src/venue", root: &["venue"] },
];

impl Package {
    /// The package of this file.
    fn of(file: &str) -> &'static Self {
        let own = PACKAGES.iter().filter(|package| file.starts_with(package.folder));
        own.max_by_key(|package| package.folder.len()).expect("a file of the server")
    }

    /// The package that code names by this crate.
    fn named(crate_name: &str) -> Option<&'static Self> {
        let name = crate_name.strip_prefix("paperbourse_")?;
        PACKAGES.iter().find(|package| package.folder.strip_prefix("src/") == Some(name))
    }

    fn path(&self) -> Vec<String> {
        self.root.iter().map(ToString::to_string).collect()
    }
}

/// All modules of the server.
pub(crate) fn modules() -> Vec<Module> {
    let mut parsed = Vec::new();
    for package in &PACKAGES {
        parse(package, "lib", &[], &mut parsed);
    }
    let crates = crates();
    let names: Vec<String> = parsed.iter().map(|(_, module, _)| module.join("/")).collect();
    let module = |(file, module, content): (String, Vec<String>, syn::File)| {
        let aliases = BTreeMap::new();
        let root = Package::of(&file).root.len();
        let named = BTreeSet::new();
        let mut reader = Reader { names: &names, crates: &crates, module, root, aliases, named };
        let name = reader.module.join("/");
        // Imports first, because a path may begin with one.
        for _ in 0..2 {
            reader.named.clear();
            reader.visit_file(&content);
        }
        Module { name, file, named: reader.named }
    };
    parsed.into_iter().map(module).collect()
}

/// The module of a path inside the crate: its longest prefix that is a module.
pub(crate) fn module_of(modules: &[Module], path: &[String]) -> String {
    let parts = (0..=path.len()).rev().map(|length| path[..length].join("/"));
    let mut found = parts.filter(|name| modules.iter().any(|module| module.name == *name));
    found.next().unwrap_or_default()
}

/// The crates that a path can begin with.
fn crates() -> BTreeSet<String> {
    let manifest = |package: &Package| {
        let folder = if package.folder == "src" { "." } else { package.folder };
        fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap()
    };
    let manifests: String = PACKAGES.iter().map(manifest).collect();
    let mut is_listed = false;
    let mut crates = BTreeSet::from(["std", "core", "alloc"].map(String::from));
    for line in manifests.lines() {
        if line.starts_with('[') {
            is_listed = line.ends_with("dependencies]");
        } else if let Some((name, _)) = line.split_once(" = ").filter(|_| is_listed) {
            let name = name.trim_end_matches(".workspace");
            crates.insert(name.replace('-', "_"));
        }
    }
    crates
}

/// Parses a module of the package in this folder, and the modules it declares.
fn parse(
    package: &Package,
    file: &str,
    module: &[String],
    found: &mut Vec<(String, Vec<String>, syn::File)>,
) {
    let file = format!("{}/{file}.rs", package.folder);
    let text = fs::read_to_string(root().join(&file)).unwrap();
    let content = syn::parse_file(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let declared: Vec<String> = content
        .items
        .iter()
        .filter_map(|item| match item {
            Item::Mod(item) if item.content.is_none() && !is_for_tests(&item.attrs) => {
                Some(item.ident.to_string())
            }
            _ => None,
        })
        .collect();
    found.push((file, [&package.path(), module].concat(), content));
    for name in declared {
        let inner: Vec<String> = module.iter().cloned().chain([name]).collect();
        parse(package, &inner.join("/"), &inner, found);
    }
}

/// Whether an item with these attributes is only compiled for tests.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    fn needs_test(meta: &Meta) -> bool {
        let of = |list: &syn::MetaList| {
            let parser = Punctuated::<Meta, Token![,]>::parse_terminated;
            list.parse_args_with(parser).unwrap_or_default()
        };
        match meta {
            Meta::Path(path) => path.is_ident("test"),
            Meta::NameValue(pair) => {
                let value = &pair.value;
                pair.path.is_ident("feature")
                    && matches!(value, syn::Expr::Lit(value) if matches!(&value.lit,
                        syn::Lit::Str(name) if name.value() == "test-util"))
            }
            Meta::List(list) if list.path.is_ident("all") => of(list).iter().any(needs_test),
            Meta::List(list) if list.path.is_ident("any") => of(list).iter().all(needs_test),
            Meta::List(_) => false,
        }
    }
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<Meta>().is_ok_and(|meta| needs_test(&meta))
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

struct Reader<'n> {
    names: &'n [String],
    crates: &'n BTreeSet<String>,
    /// The current module, including inline modules.
    module: Vec<String>,
    /// How much of it is the root of its package.
    root: usize,
    /// The names that the file's imports introduce, and their paths.
    aliases: BTreeMap<String, Vec<String>>,
    named: BTreeSet<Vec<String>>,
}

impl Reader<'_> {
    /// Records a path of at least two names. A single name is local or imported.
    fn name(&mut self, path: &[String]) {
        if path.len() > 1
            && let Some(path) = self.resolved(path)
        {
            self.named.insert(path);
        }
    }

    /// The path from the root of its crate; `None` if it begins with a local name.
    fn resolved(&self, path: &[String]) -> Option<Vec<String>> {
        let (head, rest) = path.split_first()?;
        let supers = path.iter().take_while(|name| *name == "super").count();
        let own = |depth: usize| [&["crate".to_owned()], &self.module[..depth]].concat();
        let (base, rest) = match head.as_str() {
            "crate" => (own(self.root), rest),
            _ if Package::named(head).is_some() => {
                ([own(0), Package::named(head)?.path()].concat(), rest)
            }
            "self" => (own(self.module.len()), rest),
            "super" => (own(self.module.len() - supers), &path[supers..]),
            "Self" => return None,
            _ if self.aliases.contains_key(head) => (self.aliases[head].clone(), rest),
            _ if self.names.contains(&[&self.module[..], &path[..1]].concat().join("/")) => {
                (own(self.module.len()), path)
            }
            _ if self.crates.contains(head) => (Vec::new(), path),
            _ => return None,
        };
        Some([&base, rest].concat())
    }

    fn imports(&mut self, prefix: &mut Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.imports(prefix, &path.tree);
                prefix.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                let alias = prefix.last().cloned().unwrap_or_default();
                self.import(alias, prefix);
            }
            UseTree::Name(name) => {
                let path = [&prefix[..], &[name.ident.to_string()]].concat();
                self.import(name.ident.to_string(), &path);
            }
            UseTree::Rename(rename) => {
                let path = [&prefix[..], &[rename.ident.to_string()]].concat();
                self.import(rename.rename.to_string(), &path);
            }
            UseTree::Glob(_) => {
                let path = [&prefix[..], &["*".to_owned()]].concat();
                self.name(&path);
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.imports(prefix, tree);
                }
            }
        }
    }

    fn import(&mut self, alias: String, path: &[String]) {
        self.name(path);
        if let Some(path) = self.resolved(path) {
            self.aliases.insert(alias, path);
        }
    }

    /// The paths in the arguments of a macro, which are not parsed.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.name(&std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Group(group) => {
                    self.name(&std::mem::take(&mut path));
                    self.tokens(group.stream());
                }
                _ => self.name(&std::mem::take(&mut path)),
            }
        }
        self.name(&path);
    }
}

impl<'a> Visit<'a> for Reader<'_> {
    fn visit_item(&mut self, item: &'a Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_variant(&mut self, variant: &'a syn::Variant) {
        if !is_for_tests(&variant.attrs) {
            visit::visit_variant(self, variant);
        }
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_arm(&mut self, arm: &'a syn::Arm) {
        if !is_for_tests(&arm.attrs) {
            visit::visit_arm(self, arm);
        }
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    /// Who may see an item is no use of it.
    fn visit_visibility(&mut self, _: &'a syn::Visibility) {}

    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.imports(&mut Vec::new(), &item.tree);
    }

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.name(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, macro_: &'a syn::Macro) {
        if let Some(name) = macro_.path.get_ident() {
            // A macro without a path is local or from the standard library.
            let path = vec!["std".into(), format!("{name}!")];
            self.named.insert(path);
        }
        self.tokens(macro_.tokens.clone());
        visit::visit_macro(self, macro_);
    }
}

//! Renews the tokens with which this cluster reads mailboxes and writes its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Instant,
};

use super::{Control, TaskResult};
use crate::core::{
    clock,
    objects::SecretReference,
    peers::token::{self, TokenClaims},
};

impl Control {
    /// The tokens by the Secrets that hold them. Peers on one hub can share a Secret, and the mailbox can be there too.
    fn tokens(&self) -> BTreeMap<SecretReference, TokenClaims> {
        let peers = self.core.state.peers.all().values();
        let of_peers = peers.filter_map(|peer| Some((&peer.object.secret, peer.token.as_ref()?)));
        let tokens = of_peers.chain(self.outbox.token());
        tokens.map(|(secret, token)| (secret.clone(), token.clone())).collect()
    }

    /// Renews the tokens of which a third of the life is over.
    pub(super) fn renew_tokens(&mut self, now: Instant) {
        let clock = clock::time_of_day();
        let tokens = self.tokens();
        self.renewals.retain(|secret| tokens.contains_key(secret));
        self.measure_tokens(&tokens);
        for (secret, claims) in tokens {
            if !self.renewals.is_due(&secret, &claims, clock, now) {
                continue;
            }
            let Some(kubeconfig) = self.core.state.peers.kubeconfig(&secret).cloned() else {
                continue;
            };
            let version =
                self.core.state.peers.secret_version(&secret).unwrap_or_default().to_owned();
            let (access, namespace) =
                (Arc::clone(&self.core.access), self.core.state.settings.namespace.clone());
            self.tasks.push(Box::pin(async move {
                let renewal = token::renew(&access, &namespace, &secret, &version, kubeconfig);
                let result = renewal.await;
                TaskResult::Token(secret.name, result)
            }));
        }
    }

    fn measure_tokens(&mut self, tokens: &BTreeMap<SecretReference, TokenClaims>) {
        let metrics = &self.core.published.metrics;
        let names: BTreeSet<_> = tokens.keys().map(|secret| secret.name.clone()).collect();
        for gone in self.measured_tokens.difference(&names) {
            metrics.remove_token(gone);
        }
        for (secret, token) in tokens {
            metrics.set_token(&secret.name, token);
        }
        self.token_failures.retain(|name| names.contains(name));
        self.measured_tokens = names;
    }
}

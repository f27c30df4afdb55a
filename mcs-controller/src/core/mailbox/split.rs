//! Shares the events of a hub out among its mailboxes, by namespace.

use std::collections::{BTreeMap, BTreeSet};

use mcs_kube::{Decoder, ResourceEvent, WatchedObject};

use super::MailboxEvent;

impl MailboxEvent {
    /// Splits an event among these mailboxes, by namespace. A mailbox without an object in a list gets an empty list.
    pub fn split<'a>(self, mailboxes: impl Iterator<Item = &'a str>) -> Vec<(String, Self)> {
        match self {
            Self::Services(event) => shared(event, mailboxes, Self::Services),
            Self::Slices(event) => shared(event, mailboxes, Self::Slices),
            Self::Lease(event) => shared(event, mailboxes, Self::Lease),
        }
    }
}

fn shared<'a, D: Decoder>(
    event: ResourceEvent<D>,
    mailboxes: impl Iterator<Item = &'a str>,
    wrap: fn(ResourceEvent<D>) -> MailboxEvent,
) -> Vec<(String, MailboxEvent)> {
    let namespace = |object: &WatchedObject<D>| object.key().namespace.to_string();
    match event {
        ResourceEvent::Changed(object) => {
            vec![(namespace(&object), wrap(ResourceEvent::Changed(object)))]
        }
        ResourceEvent::Deleted(object) => {
            vec![(namespace(&object), wrap(ResourceEvent::Deleted(object)))]
        }
        ResourceEvent::LeftOut { namespace, objects } => {
            vec![(namespace.clone(), wrap(ResourceEvent::LeftOut { namespace, objects }))]
        }
        ResourceEvent::Listed { version, objects } => {
            let mut lists: BTreeMap<String, Vec<_>> =
                mailboxes.map(|mailbox| (mailbox.to_owned(), vec![])).collect();
            for object in objects {
                if let Some(list) = lists.get_mut(&*object.key().namespace) {
                    list.push(object);
                }
            }
            let listed =
                |objects| wrap(ResourceEvent::Listed { version: version.clone(), objects });
            lists.into_iter().map(|(mailbox, objects)| (mailbox, listed(objects))).collect()
        }
        of_all @ (ResourceEvent::NotServed { .. }
        | ResourceEvent::Failing { .. }
        | ResourceEvent::Recovered) => {
            let each: BTreeSet<&str> = mailboxes.collect();
            let event = |mailbox: &str| (mailbox.to_owned(), wrap(of_all.clone()));
            each.into_iter().map(event).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::from_value;

    use super::*;
    use crate::core::objects::{PublisherLeaseDecoder, complete_lease, publisher_lease};

    fn lease(mailbox: &str) -> WatchedObject<PublisherLeaseDecoder> {
        let lease = publisher_lease(mailbox, &complete_lease("east", 0, 1), Timestamp::UNIX_EPOCH);
        from_value(lease).unwrap()
    }

    fn split(event: ResourceEvent<PublisherLeaseDecoder>) -> Vec<(String, MailboxEvent)> {
        MailboxEvent::Lease(event).split(["mcs-east", "mcs-west"].into_iter())
    }

    #[test]
    fn a_list_of_a_hub_is_a_list_of_each_mailbox() {
        let list = |objects| {
            MailboxEvent::Lease(ResourceEvent::Listed { version: "v1".to_owned(), objects })
        };
        let objects = vec![lease("mcs-east"), lease("mcs-south")];
        let event = ResourceEvent::Listed { version: "v1".to_owned(), objects };
        assert_eq!(
            split(event),
            [
                ("mcs-east".to_owned(), list(vec![lease("mcs-east")])),
                ("mcs-west".to_owned(), list(vec![])),
            ]
        );
    }

    #[test]
    fn a_change_is_one_of_its_mailbox_and_an_outage_one_of_all() {
        let mailboxes = |event| -> Vec<String> {
            split(event).into_iter().map(|(mailbox, _)| mailbox).collect()
        };
        assert_eq!(mailboxes(ResourceEvent::Changed(lease("mcs-west"))), ["mcs-west"]);
        assert_eq!(mailboxes(ResourceEvent::Deleted(lease("mcs-west"))), ["mcs-west"]);
        let namespace = "mcs-west".to_owned();
        assert_eq!(mailboxes(ResourceEvent::LeftOut { namespace, objects: 1 }), ["mcs-west"]);
        assert_eq!(mailboxes(ResourceEvent::Recovered), ["mcs-east", "mcs-west"]);
    }
}

BEGIN TRANSACTION;
CREATE TABLE admitted (
	"row" INTEGER NOT NULL, 
	id VARCHAR NOT NULL, 
	rank BIGINT NOT NULL, 
	who VARCHAR NOT NULL, 
	actions TEXT NOT NULL, 
	type VARCHAR NOT NULL, 
	"where" TEXT NOT NULL, 
	attributes TEXT, 
	forced TEXT NOT NULL, 
	effect VARCHAR NOT NULL, 
	disclose BOOLEAN NOT NULL, 
	author VARCHAR NOT NULL, 
	role TEXT, 
	attested BOOLEAN, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (id, from_version)
);
INSERT INTO "admitted" VALUES(1,'chain:0ab012fb333dff9df70785e8',0,'bob','["subscribe"]','news.Story','"hits > 1"','["title","hits"]','[["hits",3]]','grant',0,'ann',NULL,0,5,13);
INSERT INTO "admitted" VALUES(2,'chain:3d7ce87282594b40331e66ba',0,'bob','["connect"]','*','"true"',NULL,'[]','grant',0,'ann',NULL,0,5,13);
CREATE TABLE advertisements (
	"row" INTEGER NOT NULL, 
	principal VARCHAR NOT NULL, 
	type VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (principal, type, from_version)
);
INSERT INTO "advertisements" VALUES(1,'bob','news.Story',4,12);
CREATE TABLE bags (
	"row" INTEGER NOT NULL, 
	principal VARCHAR NOT NULL, 
	certificate VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (principal, certificate, from_version)
);
INSERT INTO "bags" VALUES(1,'bob','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1#c1',5,13);
INSERT INTO "bags" VALUES(2,'bob','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1#c2',5,9);
CREATE TABLE bans (
	"row" INTEGER NOT NULL, 
	digest VARCHAR NOT NULL, 
	content TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (digest, from_version)
);
INSERT INTO "bans" VALUES(1,'505bacb2fe8f57e6e6334ce779c15693fc9d7c3cbd35d855f40b7ec22e94d3ee','["Conf","","Guest",["bob"],"Chair","ann",{"role":"Chair","args":[],"service":"Conf","instance":["given",""]}]',10,NULL);
CREATE TABLE elections (
	"row" INTEGER NOT NULL, 
	id VARCHAR NOT NULL, 
	rank BIGINT NOT NULL, 
	elector VARCHAR NOT NULL, 
	content TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (id, from_version)
);
INSERT INTO "elections" VALUES(1,'e',30064771072,'ann','{"service":"Conf","instance":"","role":"Member","args":[null],"membership":"chair","office":{"role":"Chair","args":[],"service":"Conf","instance":["given",""]},"office_record":17179869190,"record":30064771079,"required":[{"role":"LoggedOn","args":[["variable","_"],["given",{"float":"0x1.0000000000000p+0"}]],"service":"Login","instance":["given",""]}],"until":1767258800000000,"revoke_on_exit":false,"revokers":[]}',7,8);
INSERT INTO "elections" VALUES(2,'e',30064771072,'ann','{"service":"Conf","instance":"","role":"Member","args":[null],"membership":"chair","office":{"role":"Chair","args":[],"service":"Conf","instance":["given",""]},"office_record":17179869190,"record":30064771079,"required":[{"role":"LoggedOn","args":[["variable","_"],["given",{"float":"0x1.0000000000000p+0"}]],"service":"Login","instance":["given",""]}],"until":1767258800000000,"revoke_on_exit":false,"revokers":["cat"]}',8,NULL);
CREATE TABLE endings (
	id VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	reason TEXT NOT NULL, 
	PRIMARY KEY (id, from_version)
);
INSERT INTO "endings" VALUES('g',10,'"`Conf.Guest(''bob'')` was revoked by `Chair`"');
INSERT INTO "endings" VALUES('l-bob',12,'"it was revoked"');
INSERT INTO "endings" VALUES('m',12,'"it rested on `l-bob`: it was revoked"');
INSERT INTO "endings" VALUES('s',12,'"it rested on `m`"');
INSERT INTO "endings" VALUES('l-cat',13,'"its holder is no more"');
INSERT INTO "endings" VALUES('q',13,'"its holder is no more"');
INSERT INTO "endings" VALUES('n',13,'"its holder is no more"');
INSERT INTO "endings" VALUES('c2',13,'"its holder is no more"');
INSERT INTO "endings" VALUES('w',13,'"its holder is no more"');
CREATE TABLE event_policy (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "event_policy" VALUES(1,'events','"badge.Seen(u, r) <= Conf.Member(u)\n-badge.Seen(u, r) <=\n"',8,13);
CREATE TABLE groups (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	open BOOLEAN NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "groups" VALUES(1,'staff',0,1,11);
INSERT INTO "groups" VALUES(2,'editors',1,1,NULL);
INSERT INTO "groups" VALUES(3,'staff',1,11,NULL);
CREATE TABLE keys (
	"row" INTEGER NOT NULL, 
	principal VARCHAR NOT NULL, 
	"key" VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (principal, from_version)
);
INSERT INTO "keys" VALUES(1,'ann','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1',2,10);
INSERT INTO "keys" VALUES(2,'bob','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2',2,NULL);
INSERT INTO "keys" VALUES(3,'ann','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa8',10,NULL);
CREATE TABLE members (
	"row" INTEGER NOT NULL, 
	"group" VARCHAR NOT NULL, 
	member VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE ("group", member, from_version)
);
INSERT INTO "members" VALUES(1,'staff','bob',2,11);
INSERT INTO "members" VALUES(2,'staff','room 7',2,NULL);
INSERT INTO "members" VALUES(3,'editors','staff',2,NULL);
CREATE TABLE memberships (
	"row" INTEGER NOT NULL, 
	id VARCHAR NOT NULL, 
	rank BIGINT NOT NULL, 
	holder VARCHAR NOT NULL, 
	service VARCHAR NOT NULL, 
	instance TEXT NOT NULL, 
	role TEXT NOT NULL, 
	args TEXT NOT NULL, 
	record BIGINT NOT NULL, 
	state BOOLEAN, 
	statement TEXT NOT NULL, 
	supports TEXT NOT NULL, 
	appointment BOOLEAN NOT NULL, 
	until BIGINT, 
	"foreign" BOOLEAN NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (id, from_version)
);
INSERT INTO "memberships" VALUES(1,'l-ann',25769803776,'ann','Login','""','"LoggedOn"','["ann",{"float":"0x1.0000000000000p+0"}]',6,1,'""','[]',0,NULL,0,6,NULL);
INSERT INTO "memberships" VALUES(2,'l-bob',25769803777,'bob','Login','""','"LoggedOn"','["bob",{"float":"0x1.0000000000000p+0"}]',4294967302,1,'""','[]',0,NULL,0,6,12);
INSERT INTO "memberships" VALUES(3,'l-cat',25769803778,'cat','Login','""','"LoggedOn"','["cat",{"float":"0x1.0000000000000p+0"}]',8589934598,1,'""','[]',0,NULL,0,6,13);
INSERT INTO "memberships" VALUES(4,'q',25769803779,'cat','Login','"night"','"Doctor"','[{"set":"rw"},true]',12884901894,1,'""','[]',1,1767258900000000,0,6,13);
INSERT INTO "memberships" VALUES(5,'chair',25769803780,'ann','Conf','""','"Chair"','[]',17179869190,1,'"Chair <- Login.LoggedOn(''ann'', h)*"','["l-ann"]',0,NULL,0,6,NULL);
INSERT INTO "memberships" VALUES(6,'n',30064771072,'cat','Ward','""','"Nurse"','["cat"]',25769803783,1,'""','[]',0,NULL,1,7,9);
INSERT INTO "memberships" VALUES(7,'c2',30064771073,'cat','Conf','""','"Chair"','[]',34359738375,1,'""','[]',0,NULL,0,7,13);
INSERT INTO "memberships" VALUES(8,'m',30064771074,'bob','Conf','""','"Member"','["bob"]',38654705671,1,'"Member(u) <- Login.LoggedOn(u, h)* <|* Chair"','["l-bob","e"]',0,NULL,0,7,12);
INSERT INTO "memberships" VALUES(9,'g',30064771075,'bob','Conf','""','"Guest"','["bob"]',47244640263,1,'"Guest(u) <- Login.LoggedOn(u, h)* |>* Chair"','["l-bob"]',0,NULL,0,7,10);
INSERT INTO "memberships" VALUES(10,'w',30064771076,'cat','Conf','""','"Nurse"','["cat"]',51539607559,1,'"Nurse(u) <- Ward.Nurse(u)*"','["n"]',0,NULL,0,7,9);
INSERT INTO "memberships" VALUES(11,'s',34359738368,'bob','Conf','""','"Speaker"','["bob"]',55834574856,1,'"Speaker(u) <- Member(u)*"','["m"]',0,NULL,0,8,12);
INSERT INTO "memberships" VALUES(12,'n',30064771072,'cat','Ward','""','"Nurse"','["cat"]',25769803783,NULL,'""','[]',0,NULL,1,9,10);
INSERT INTO "memberships" VALUES(13,'w',30064771076,'cat','Conf','""','"Nurse"','["cat"]',51539607559,NULL,'"Nurse(u) <- Ward.Nurse(u)*"','["n"]',0,NULL,0,9,10);
INSERT INTO "memberships" VALUES(14,'n',30064771072,'cat','Ward','""','"Nurse"','["cat"]',25769803783,1,'""','[]',0,NULL,1,10,12);
INSERT INTO "memberships" VALUES(15,'w',30064771076,'cat','Conf','""','"Nurse"','["cat"]',51539607559,1,'"Nurse(u) <- Ward.Nurse(u)*"','["n"]',0,NULL,0,10,12);
INSERT INTO "memberships" VALUES(16,'n',30064771072,'cat','Ward','""','"Nurse"','["cat"]',25769803783,NULL,'""','[]',0,NULL,1,12,13);
INSERT INTO "memberships" VALUES(17,'w',30064771076,'cat','Conf','""','"Nurse"','["cat"]',51539607559,NULL,'"Nurse(u) <- Ward.Nurse(u)*"','["n"]',0,NULL,0,12,13);
CREATE TABLE meta (
	name VARCHAR NOT NULL, 
	value TEXT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "meta" VALUES('format','5');
INSERT INTO "meta" VALUES('administrator','administrator');
INSERT INTO "meta" VALUES('headgate','0.1.0');
CREATE TABLE peers (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	content TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "peers" VALUES(1,'Ward','{"key":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa7","service":"Ward","bound":20,"url":"https://ward.example","heard":1767258000000000,"number":1}',6,10);
INSERT INTO "peers" VALUES(2,'Ward','{"key":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa7","service":"Ward","bound":20,"url":"https://ward.example","heard":1767258061000000,"number":2}',10,13);
CREATE TABLE policy_rules (
	"row" INTEGER NOT NULL, 
	principal VARCHAR NOT NULL, 
	"where" TEXT NOT NULL, 
	attested BOOLEAN NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (principal, from_version)
);
INSERT INTO "policy_rules" VALUES(1,'cat','"$clearance > 0"',0,3,13);
INSERT INTO "policy_rules" VALUES(2,'bob','"$rank >= 2"',1,5,13);
CREATE TABLE predicates (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	target VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "predicates" VALUES(1,'near','places:near','0000000000000000000000000000000000000000000000000000000000000000',1,12);
CREATE TABLE principals (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "principals" VALUES(1,'ann',1,NULL);
INSERT INTO "principals" VALUES(2,'cat',1,13);
INSERT INTO "principals" VALUES(3,'bob',1,NULL);
CREATE TABLE records (
	"row" INTEGER NOT NULL, 
	ref BIGINT NOT NULL, 
	op VARCHAR NOT NULL, 
	parents TEXT NOT NULL, 
	state BOOLEAN, 
	fact TEXT NOT NULL, 
	flags INTEGER NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (ref, from_version)
);
INSERT INTO "records" VALUES(1,6,'leaf','[]',1,'',2,6,NULL);
INSERT INTO "records" VALUES(2,4294967302,'leaf','[]',1,'',2,6,12);
INSERT INTO "records" VALUES(3,8589934598,'leaf','[]',1,'',2,6,13);
INSERT INTO "records" VALUES(4,12884901894,'leaf','[]',1,'',2,6,13);
INSERT INTO "records" VALUES(5,17179869190,'and','[6]',1,'',10,6,NULL);
INSERT INTO "records" VALUES(6,21474836487,'leaf','[]',1,'["peer","Ward",5]',0,7,9);
INSERT INTO "records" VALUES(7,25769803783,'and','[21474836487]',1,'',10,7,9);
INSERT INTO "records" VALUES(8,30064771079,'leaf','[]',1,'',2,7,NULL);
INSERT INTO "records" VALUES(9,34359738375,'leaf','[]',1,'',2,7,13);
INSERT INTO "records" VALUES(10,38654705671,'and','[4294967302,30064771079]',1,'',10,7,12);
INSERT INTO "records" VALUES(11,42949672967,'leaf','[]',1,'["not-revoked","Conf","","Guest",["bob"],"Chair"]',0,7,10);
INSERT INTO "records" VALUES(12,47244640263,'and','[4294967302,42949672967]',1,'',10,7,10);
INSERT INTO "records" VALUES(13,51539607559,'and','[25769803783]',1,'',10,7,9);
INSERT INTO "records" VALUES(14,55834574856,'and','[38654705671]',1,'',10,8,12);
INSERT INTO "records" VALUES(15,21474836487,'leaf','[]',NULL,'["peer","Ward",5]',0,9,10);
INSERT INTO "records" VALUES(16,25769803783,'and','[21474836487]',NULL,'',10,9,10);
INSERT INTO "records" VALUES(17,51539607559,'and','[25769803783]',NULL,'',10,9,10);
INSERT INTO "records" VALUES(18,21474836487,'leaf','[]',1,'["peer","Ward",5]',0,10,12);
INSERT INTO "records" VALUES(19,25769803783,'and','[21474836487]',1,'',10,10,12);
INSERT INTO "records" VALUES(20,51539607559,'and','[25769803783]',1,'',10,10,12);
INSERT INTO "records" VALUES(21,21474836487,'leaf','[]',NULL,'["peer","Ward",5]',0,12,13);
INSERT INTO "records" VALUES(22,25769803783,'and','[21474836487]',NULL,'',10,12,13);
INSERT INTO "records" VALUES(23,51539607559,'and','[25769803783]',NULL,'',10,12,13);
CREATE TABLE relation_rows (
	"row" INTEGER NOT NULL, 
	relation VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	"values" TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (relation, digest, from_version)
);
INSERT INTO "relation_rows" VALUES(1,'Knows','b1aafb0d4ee706f1fe2ea1f8a4d7d84ec4c24870a2b91d2da6f2ddb0c2249dcf','[1,"x"]',2,11);
INSERT INTO "relation_rows" VALUES(2,'Above','ba0b516df616807a7e32faf54295214be5ab000f30e6dd89b3bf162718a49eb3','[true,{"float":"0x1.8000000000000p+0"},"\u00e9\n",{"timestamp":1767258000000000}]',2,NULL);
INSERT INTO "relation_rows" VALUES(3,'Knows','9dd65d61325ea137c6dac050b5bee51cf857f5e12e8cb105ccda24cb207c3d53','[true,"x"]',11,NULL);
CREATE TABLE relations (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	open BOOLEAN NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "relations" VALUES(1,'Knows',0,1,NULL);
INSERT INTO "relations" VALUES(2,'Above',1,1,NULL);
CREATE TABLE representatives (
	"row" INTEGER NOT NULL, 
	type VARCHAR NOT NULL, 
	parameters TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (type, from_version)
);
INSERT INTO "representatives" VALUES(1,'badge.Seen','[["user","Above(badge)"],["room","room"]]',8,NULL);
CREATE TABLE rolefiles (
	"row" INTEGER NOT NULL, 
	service VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (service, from_version)
);
INSERT INTO "rolefiles" VALUES(1,'Conf','"Chair <- Login.LoggedOn(''ann'', h)*\nMember(u) <- Login.LoggedOn(u, h)* <|* Chair\nMember(u) <- Login.LoggedOn(u, h)* : (u in staff)*\nSpeaker(u) <- Member(u)*\nGuest(u) <- Login.LoggedOn(u, h)* |>* Chair\nNurse(u) <- Ward.Nurse(u)*\n"',6,NULL);
CREATE TABLE rules (
	"row" INTEGER NOT NULL, 
	id VARCHAR NOT NULL, 
	rank BIGINT NOT NULL, 
	who VARCHAR NOT NULL, 
	actions TEXT NOT NULL, 
	type VARCHAR NOT NULL, 
	"where" TEXT NOT NULL, 
	attributes TEXT, 
	forced TEXT NOT NULL, 
	effect VARCHAR NOT NULL, 
	disclose BOOLEAN NOT NULL, 
	author VARCHAR NOT NULL, 
	role TEXT, 
	attested BOOLEAN, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (id, from_version)
);
INSERT INTO "rules" VALUES(1,'r4',0,'cat','["subscribe"]','news.Story','"true"',NULL,'[]','forbid',1,'administrator',NULL,0,3,12);
INSERT INTO "rules" VALUES(2,'r1',1,'staff','["subscribe"]','news.Story','"price > 1.5 and title != ''\u00e9''"',NULL,'[]','grant',0,'administrator',NULL,0,3,11);
INSERT INTO "rules" VALUES(3,'r2',2,'bob','["publish"]','news.*','"true"','["hits","title"]','[["hits",7]]','grant',0,'administrator',NULL,0,3,NULL);
INSERT INTO "rules" VALUES(4,'r3',3,'ann','["publish"]','*','"true"',NULL,'[]','grant',0,'administrator',NULL,1,3,NULL);
INSERT INTO "rules" VALUES(5,'r5',4,'','["subscribe"]','badge.Seen','"true"',NULL,'[]','grant',0,'administrator','"Conf.Member(''bob'')"',0,3,NULL);
INSERT INTO "rules" VALUES(6,'r1',5,'staff','["subscribe"]','news.Story','"true"',NULL,'[]','grant',0,'administrator',NULL,0,11,NULL);
CREATE TABLE settings (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	value TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "settings" VALUES(1,'connect','open',2,13);
INSERT INTO "settings" VALUES(2,'network','uk',2,NULL);
INSERT INTO "settings" VALUES(3,'names','any',2,NULL);
INSERT INTO "settings" VALUES(4,'$clearance','private',2,12);
INSERT INTO "settings" VALUES(5,'coordinator','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1',5,13);
CREATE TABLE starting_points (
	stream VARCHAR NOT NULL, 
	version BIGINT NOT NULL, 
	seq BIGINT NOT NULL, 
	PRIMARY KEY (stream, version)
);
INSERT INTO "starting_points" VALUES('main',1,5);
CREATE TABLE statements (
	"row" INTEGER NOT NULL, 
	kind VARCHAR NOT NULL, 
	id VARCHAR NOT NULL, 
	content TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (kind, id, from_version)
);
INSERT INTO "statements" VALUES(1,'certificate','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1#c1','{"id":"c1","issuer":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1","subject":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2","delegate":true,"authority":[{"type":"news.Story","owner":null,"actions":["subscribe"],"attributes":["title","hits"],"forced":[["hits",3]],"where":"\"hits > 1\""},{"network":"uk","actions":["connect"]}],"freshness":null,"start":null,"until":null}',5,13);
INSERT INTO "statements" VALUES(2,'certificate','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1#c2','{"id":"c2","issuer":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1","subject":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2","delegate":true,"authority":[{"type":"news.Story","owner":null,"actions":["subscribe"],"attributes":["title","hits"],"forced":[["hits",3]],"where":"\"hits > 1\""},{"network":"uk","actions":["connect"]}],"freshness":null,"start":null,"until":1767258050000000}',5,9);
INSERT INTO "statements" VALUES(3,'provider','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa4','{"key":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa4","name":"home","mapping":null,"own":false}',5,NULL);
INSERT INTO "statements" VALUES(4,'provider','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa5','{"key":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa5","name":"abroad","mapping":[["rank","level",[[1,"low"],[{"float":"0x1.4000000000000p+1"},true]]]],"own":false}',5,13);
INSERT INTO "statements" VALUES(5,'identity','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa4#i1','{"principal":"bob","applied":["rank","\u00e9t\u00e9"],"id":"i1","issuer":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa4","subject":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa2","attributes":[["rank",2],["\u00e9t\u00e9",{"float":"0x1.8000000000000p+0"}]],"policy_rule":"\"$rank >= 2\"","guest_of":null,"origin":null,"start":1767258000000000,"until":1767258100000000}',5,12);
INSERT INTO "statements" VALUES(6,'policy rule','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa4#bob','{"principal":"bob","provider":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa4","began":1767258000000000,"rule":"\"$rank >= 2\""}',5,13);
INSERT INTO "statements" VALUES(7,'issuing','members','{"id":"members","who":"staff","seconds":600,"delegate":true,"authority":[{"type":"news.Story","owner":null,"actions":["subscribe"],"attributes":["title","hits"],"forced":[["hits",3]],"where":"\"hits > 1\""},{"network":"uk","actions":["connect"]}]}',5,13);
INSERT INTO "statements" VALUES(8,'list','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1','{"issuer":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1","number":1,"issued":1767258061000000,"revoked":["c9"]}',10,NULL);
INSERT INTO "statements" VALUES(9,'succession','did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1','{"old":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1","new":"did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa8","number":1,"until":1767263000000000}',10,NULL);
CREATE TABLE subject_attributes (
	"row" INTEGER NOT NULL, 
	principal VARCHAR NOT NULL, 
	name VARCHAR NOT NULL, 
	value TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (principal, name, from_version)
);
INSERT INTO "subject_attributes" VALUES(1,'bob','clearance','1',1,NULL);
INSERT INTO "subject_attributes" VALUES(2,'bob','ratio','{"float":"0x1.999999999999ap-4"}',1,11);
INSERT INTO "subject_attributes" VALUES(3,'bob','born','{"timestamp":1767258000000000}',1,NULL);
INSERT INTO "subject_attributes" VALUES(4,'bob','badge','{"bytes":"ff"}',1,NULL);
INSERT INTO "subject_attributes" VALUES(5,'bob','rank','2',5,12);
INSERT INTO "subject_attributes" VALUES(6,'bob','été','{"float":"0x1.8000000000000p+0"}',5,12);
CREATE TABLE subscriptions (
	"row" INTEGER NOT NULL, 
	id VARCHAR NOT NULL, 
	principal VARCHAR NOT NULL, 
	type VARCHAR NOT NULL, 
	"where" TEXT NOT NULL, 
	history BOOLEAN NOT NULL, 
	since_version BIGINT NOT NULL, 
	since_time BIGINT, 
	requires TEXT, 
	origin VARCHAR, 
	counted TEXT, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (id, from_version)
);
INSERT INTO "subscriptions" VALUES(1,'s1','bob','news.Story','"hits in {1, 2}"',1,0,NULL,NULL,NULL,NULL,4,12);
INSERT INTO "subscriptions" VALUES(2,'s2','cat','news.Story','"true"',1,2,1767257940000000,'"$rank = 1"','10.0.0.1',NULL,4,13);
INSERT INTO "subscriptions" VALUES(3,'s3','bob','badge.Seen','"true"',0,0,NULL,NULL,NULL,'["m"]',8,NULL);
CREATE TABLE types (
	"row" INTEGER NOT NULL, 
	name VARCHAR NOT NULL, 
	position INTEGER NOT NULL, 
	definition TEXT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (name, from_version)
);
INSERT INTO "types" VALUES(1,'news.Story',0,'{"owner":"ann","parent":null,"key":["title"],"attributes":[["title","string"],["price","float"],["hits","int"]],"bits":{"title":0,"price":1,"hits":2},"since":{},"retired":false}',1,11);
INSERT INTO "types" VALUES(2,'news.Flash',1,'{"owner":"ann","parent":"news.Story","key":[],"attributes":[["late","timestamp"]],"bits":{"late":3},"since":{},"retired":false}',1,12);
INSERT INTO "types" VALUES(3,'badge.Seen',2,'{"owner":"administrator","parent":null,"key":[],"attributes":[["badge","string"],["room","string"]],"bits":{"badge":0,"room":1},"since":{},"retired":false}',1,NULL);
INSERT INTO "types" VALUES(4,'news.Story',0,'{"owner":"ann","parent":null,"key":["title"],"attributes":[["title","string"],["price","float"],["hits","int"],["gained","int"]],"bits":{"title":0,"price":1,"hits":2,"gained":4},"since":{"gained":11},"retired":false}',11,NULL);
INSERT INTO "types" VALUES(5,'news.Flash',1,'{"owner":"ann","parent":"news.Story","key":[],"attributes":[["late","timestamp"]],"bits":{"late":3},"since":{},"retired":true}',12,NULL);
CREATE TABLE versions (
	version BIGINT NOT NULL, 
	author VARCHAR NOT NULL, 
	recorded_at BIGINT NOT NULL, 
	note TEXT NOT NULL, 
	PRIMARY KEY (version)
);
INSERT INTO "versions" VALUES(1,'administrator',1767258001000000,'"batch 1, \u00e9"');
INSERT INTO "versions" VALUES(2,'administrator',1767258002000000,'"batch 2, \u00e9"');
INSERT INTO "versions" VALUES(3,'administrator',1767258003000000,'"batch 3, \u00e9"');
INSERT INTO "versions" VALUES(4,'administrator',1767258004000000,'"batch 4, \u00e9"');
INSERT INTO "versions" VALUES(5,'administrator',1767258005000000,'"batch 5, \u00e9"');
INSERT INTO "versions" VALUES(6,'administrator',1767258006000000,'"batch 6, \u00e9"');
INSERT INTO "versions" VALUES(7,'administrator',1767258007000000,'"batch 7, \u00e9"');
INSERT INTO "versions" VALUES(8,'administrator',1767258008000000,'"batch 8, \u00e9"');
INSERT INTO "versions" VALUES(9,'administrator',1767258009000000,'"batch 9, \u00e9"');
INSERT INTO "versions" VALUES(10,'administrator',1767258010000000,'"batch 10, \u00e9"');
INSERT INTO "versions" VALUES(11,'administrator',1767258011000000,'"batch 11, \u00e9"');
INSERT INTO "versions" VALUES(12,'administrator',1767258012000000,'"batch 12, \u00e9"');
INSERT INTO "versions" VALUES(13,'administrator',1767258013000000,'"batch 13, \u00e9"');
CREATE TABLE watches (
	"row" INTEGER NOT NULL, 
	watcher VARCHAR NOT NULL, 
	record BIGINT NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (watcher, record, from_version)
);
INSERT INTO "watches" VALUES(1,'did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa9',17179869190,8,12);
INSERT INTO "watches" VALUES(2,'did:key:z6Mkaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa9',6,8,NULL);
CREATE TABLE withdrawals (
	"row" INTEGER NOT NULL, 
	principal VARCHAR NOT NULL, 
	from_version BIGINT NOT NULL, 
	to_version BIGINT, 
	PRIMARY KEY ("row"), 
	UNIQUE (principal, from_version)
);
INSERT INTO "withdrawals" VALUES(1,'bob',4,11);
INSERT INTO "withdrawals" VALUES(2,'bob',11,NULL);
CREATE INDEX starting_points_by_version ON starting_points (version);
CREATE INDEX types_by_from ON types (from_version);
CREATE INDEX types_by_to ON types (to_version);
CREATE UNIQUE INDEX types_in_force ON types (name) WHERE to_version IS NULL;
CREATE INDEX principals_by_from ON principals (from_version);
CREATE UNIQUE INDEX principals_in_force ON principals (name) WHERE to_version IS NULL;
CREATE INDEX principals_by_to ON principals (to_version);
CREATE INDEX subject_attributes_by_from ON subject_attributes (from_version);
CREATE UNIQUE INDEX subject_attributes_in_force ON subject_attributes (principal, name) WHERE to_version IS NULL;
CREATE INDEX subject_attributes_by_to ON subject_attributes (to_version);
CREATE INDEX groups_by_from ON groups (from_version);
CREATE UNIQUE INDEX groups_in_force ON groups (name) WHERE to_version IS NULL;
CREATE INDEX groups_by_to ON groups (to_version);
CREATE UNIQUE INDEX members_in_force ON members ("group", member) WHERE to_version IS NULL;
CREATE INDEX members_by_member ON members (member);
CREATE INDEX members_by_from ON members (from_version);
CREATE INDEX members_by_to ON members (to_version);
CREATE INDEX relations_by_to ON relations (to_version);
CREATE UNIQUE INDEX relations_in_force ON relations (name) WHERE to_version IS NULL;
CREATE INDEX relations_by_from ON relations (from_version);
CREATE INDEX relation_rows_by_from ON relation_rows (from_version);
CREATE UNIQUE INDEX relation_rows_in_force ON relation_rows (relation, digest) WHERE to_version IS NULL;
CREATE INDEX relation_rows_by_to ON relation_rows (to_version);
CREATE INDEX rules_by_who ON rules (who);
CREATE UNIQUE INDEX rules_in_force ON rules (id) WHERE to_version IS NULL;
CREATE INDEX rules_by_to ON rules (to_version);
CREATE INDEX rules_by_from ON rules (from_version);
CREATE INDEX admitted_by_who ON admitted (who);
CREATE INDEX admitted_by_to ON admitted (to_version);
CREATE UNIQUE INDEX admitted_in_force ON admitted (id) WHERE to_version IS NULL;
CREATE INDEX admitted_by_from ON admitted (from_version);
CREATE INDEX policy_rules_by_from ON policy_rules (from_version);
CREATE UNIQUE INDEX policy_rules_in_force ON policy_rules (principal) WHERE to_version IS NULL;
CREATE INDEX policy_rules_by_to ON policy_rules (to_version);
CREATE INDEX subscriptions_by_from ON subscriptions (from_version);
CREATE INDEX subscriptions_by_principal ON subscriptions (principal);
CREATE INDEX subscriptions_by_to ON subscriptions (to_version);
CREATE UNIQUE INDEX subscriptions_in_force ON subscriptions (id) WHERE to_version IS NULL;
CREATE INDEX predicates_by_to ON predicates (to_version);
CREATE INDEX predicates_by_from ON predicates (from_version);
CREATE UNIQUE INDEX predicates_in_force ON predicates (name) WHERE to_version IS NULL;
CREATE INDEX keys_by_from ON keys (from_version);
CREATE INDEX keys_by_to ON keys (to_version);
CREATE UNIQUE INDEX keys_in_force ON keys (principal) WHERE to_version IS NULL;
CREATE INDEX settings_by_to ON settings (to_version);
CREATE UNIQUE INDEX settings_in_force ON settings (name) WHERE to_version IS NULL;
CREATE INDEX settings_by_from ON settings (from_version);
CREATE INDEX advertisements_by_from ON advertisements (from_version);
CREATE UNIQUE INDEX advertisements_in_force ON advertisements (principal, type) WHERE to_version IS NULL;
CREATE INDEX advertisements_by_to ON advertisements (to_version);
CREATE INDEX withdrawals_by_from ON withdrawals (from_version);
CREATE INDEX withdrawals_by_to ON withdrawals (to_version);
CREATE UNIQUE INDEX withdrawals_in_force ON withdrawals (principal) WHERE to_version IS NULL;
CREATE INDEX statements_by_to ON statements (to_version);
CREATE INDEX statements_by_from ON statements (from_version);
CREATE UNIQUE INDEX statements_in_force ON statements (kind, id) WHERE to_version IS NULL;
CREATE INDEX bags_by_to ON bags (to_version);
CREATE UNIQUE INDEX bags_in_force ON bags (principal, certificate) WHERE to_version IS NULL;
CREATE INDEX bags_by_from ON bags (from_version);
CREATE INDEX memberships_by_from ON memberships (from_version);
CREATE UNIQUE INDEX memberships_in_force ON memberships (id) WHERE to_version IS NULL;
CREATE INDEX memberships_by_to ON memberships (to_version);
CREATE INDEX memberships_by_holder ON memberships (holder);
CREATE INDEX elections_by_elector ON elections (elector);
CREATE INDEX elections_by_to ON elections (to_version);
CREATE UNIQUE INDEX elections_in_force ON elections (id) WHERE to_version IS NULL;
CREATE INDEX elections_by_from ON elections (from_version);
CREATE INDEX records_by_from ON records (from_version);
CREATE UNIQUE INDEX records_in_force ON records (ref) WHERE to_version IS NULL;
CREATE INDEX records_by_to ON records (to_version);
CREATE UNIQUE INDEX bans_in_force ON bans (digest) WHERE to_version IS NULL;
CREATE INDEX bans_by_from ON bans (from_version);
CREATE INDEX bans_by_to ON bans (to_version);
CREATE INDEX peers_by_from ON peers (from_version);
CREATE UNIQUE INDEX peers_in_force ON peers (name) WHERE to_version IS NULL;
CREATE INDEX peers_by_to ON peers (to_version);
CREATE INDEX watches_by_from ON watches (from_version);
CREATE INDEX watches_by_to ON watches (to_version);
CREATE UNIQUE INDEX watches_in_force ON watches (watcher, record) WHERE to_version IS NULL;
CREATE INDEX rolefiles_by_to ON rolefiles (to_version);
CREATE INDEX rolefiles_by_from ON rolefiles (from_version);
CREATE UNIQUE INDEX rolefiles_in_force ON rolefiles (service) WHERE to_version IS NULL;
CREATE INDEX event_policy_by_from ON event_policy (from_version);
CREATE UNIQUE INDEX event_policy_in_force ON event_policy (name) WHERE to_version IS NULL;
CREATE INDEX event_policy_by_to ON event_policy (to_version);
CREATE UNIQUE INDEX representatives_in_force ON representatives (type) WHERE to_version IS NULL;
CREATE INDEX representatives_by_from ON representatives (from_version);
CREATE INDEX representatives_by_to ON representatives (to_version);
COMMIT;
